// Which program the launcher runs, by where packages are: node --test packaging/npm
"use strict";

const assert = require("node:assert");
const { spawnSync } = require("node:child_process");
const { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } = require("node:fs");
const { tmpdir } = require("node:os");
const { join } = require("node:path");
const { test } = require("node:test");

const CLI = "@bowline/cli";
const WANTED = `${CLI}-${process.platform}-${process.arch}`;
const OWN = "project/node_modules/@bowline/cli";

function manifest(directory, name, version, more) {
  mkdirSync(join(directory, "bin"), { recursive: true });
  writeFileSync(join(directory, "package.json"), JSON.stringify({ name, version, ...more }));
}

// What the launcher of 1.2.3 does if the platform's package is in these places, in these versions.
function launched(places, env = {}) {
  const root = mkdtempSync(join(tmpdir(), "launcher-"));
  try {
    const own = join(root, OWN);
    manifest(own, CLI, "1.2.3", { optionalDependencies: { [WANTED]: "1.2.3" } });
    cpSync(join(__dirname, "launcher.js"), join(own, "bin/bowline.js"));
    for (const [place, version] of Object.entries(places)) {
      const directory = join(root, place, WANTED);
      manifest(directory, WANTED, version);
      const program = `#!/bin/sh\necho "ran ${place} $*"\n`;
      writeFileSync(join(directory, "bin/bowline"), program, { mode: 0o755 });
    }
    const options = { encoding: "utf8", env: { ...process.env, NODE_PATH: join(root, env.NODE_PATH ?? "none") } };
    const words = [join(own, "bin/bowline.js"), "x"];
    if (env.yarn) {
      const yarn = join(root, "pnp.cjs");
      writeFileSync(yarn, env.yarn);
      words.unshift("--require", yarn);
    }
    const { status, stdout, stderr } = spawnSync(process.execPath, words, options);
    return { status, stdout, stderr: stderr.replaceAll(root, "") };
  } finally {
    rmSync(root, { recursive: true });
  }
}

test("the package is in the launcher's own, or beside it", () => {
  for (const place of [`${OWN}/node_modules`, "project/node_modules"]) {
    const { status, stdout } = launched({ [place]: "1.2.3" });
    assert.deepStrictEqual([status, stdout], [0, `ran ${place} x\n`]);
  }
});

test("a package of a directory above is somebody else's", () => {
  const { status, stdout, stderr } = launched({ node_modules: "1.2.3" }, { NODE_PATH: "node_modules" });
  assert.deepStrictEqual([status, stdout], [1, ""]);
  assert.match(stderr, /^error: the package .* is not installed\nhelp: install without --omit=optional\n$/);
});

// What Yarn puts into each process of a project: its table, in which the launcher is or is not.
function yarn(locator) {
  return `process.versions.pnp = "3";
    const module_ = require("node:module");
    const load = module_._load;
    const api = { findPackageLocator: (file) => file.endsWith("bowline.js") ? ${JSON.stringify(locator)} : null };
    module_._load = (name, ...rest) => name === "pnpapi" ? api : load(name, ...rest);`;
}

test("Yarn's table is asked only if it names the launcher", () => {
  const above = { node_modules: "1.2.3" };
  const inTable = launched(above, { yarn: yarn({ name: CLI, reference: "1.2.3" }) });
  assert.deepStrictEqual([inTable.status, inTable.stdout], [0, "ran node_modules x\n"], inTable.stderr);
  const { status, stdout, stderr } = launched(above, { yarn: yarn(null) });
  assert.deepStrictEqual([status, stdout], [1, ""]);
  assert.match(stderr, /^error: the package .* is not installed\n/);
});

test("a package of another version is refused", () => {
  const { status, stdout, stderr } = launched({ "project/node_modules": "1.2.2" });
  assert.deepStrictEqual([status, stdout], [1, ""]);
  assert.ok(stderr.includes(`is ${WANTED} 1.2.2, and not ${WANTED} 1.2.3`), stderr);
  assert.ok(stderr.includes("help: install @bowline/cli 1.2.3 again"), stderr);
});
