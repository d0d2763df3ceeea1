#!/usr/bin/env node
// Runs the program of this platform's package, with the same arguments, streams and exit code.
"use strict";

const { spawn } = require("node:child_process");
const { existsSync } = require("node:fs");
const { constants } = require("node:os");
const { basename, dirname, join } = require("node:path");

const own = dirname(__dirname);
const { name, version, optionalDependencies } = require("../package.json");
const wanted = `${name}-${process.platform}-${process.arch}`;

function fail(message, help) {
  console.error(`error: ${message}`);
  console.error(`help: ${help}`);
  process.exit(1);
}

// Where installers put what a package depends on: in it, or beside it. Node itself would go on looking in every
// directory above, whose packages are somebody else's.
function places() {
  const places = [join(own, "node_modules", wanted)];
  const beside = dirname(dirname(own));
  if (basename(beside) === "node_modules") places.push(join(beside, wanted));
  // Yarn keeps a table instead. What it does not name, it looks for in every directory above, as Node does.
  if (process.versions.pnp && require("pnpapi").findPackageLocator(__filename)) {
    places.unshift(dirname(require.resolve(`${wanted}/package.json`)));
  }
  return places;
}

function program() {
  let found;
  try {
    found = places().find((place) => existsSync(join(place, "package.json")));
  } catch {
    // Yarn's table has no such package.
  }
  if (!found) {
    const built = Object.keys(optionalDependencies);
    fail(
      `the package ${wanted} is not installed`,
      built.includes(wanted)
        ? "install without --omit=optional"
        : `there are packages for ${built.join(", ")}; elsewhere, build Bowline from its source`,
    );
  }
  const its = require(join(found, "package.json"));
  if (its.name !== wanted || its.version !== version) {
    fail(
      `${found} is ${its.name} ${its.version}, and not ${wanted} ${version}`,
      `install ${name} ${version} again`,
    );
  }
  return join(found, "bin", "bowline");
}

const child = spawn(program(), process.argv.slice(2), { stdio: "inherit" });
// A terminal sends its signals to both; others know this process only.
for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`error: cannot run ${child.spawnfile}: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
