#!/usr/bin/env node
// Runs the program of this platform's package, with the same arguments, streams and exit code.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;
const wanted = `@bowline/cli-${platform}`;

function program() {
  try {
    return require.resolve(`${wanted}/bin/bowline`);
  } catch {
    const built = Object.keys(require("../package.json").optionalDependencies);
    console.error(`error: the package ${wanted} is not installed`);
    console.error(
      built.includes(wanted)
        ? "help: install without --omit=optional"
        : `help: there are packages for ${built.join(", ")}; elsewhere, build Bowline from its source`,
    );
    process.exit(1);
  }
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
