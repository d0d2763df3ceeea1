// Starts the parts of this directory from a Node script; `await using` ends them.
import { execFile, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const path = (name) => fileURLToPath(new URL(name, import.meta.url));
const PYTHON = path("../.venv/bin/python");

/** A program whose first line is JSON, which becomes the part's properties. */
async function start(command, args, env) {
  const child = spawn(command, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const first = new Promise((resolve) =>
    createInterface({ input: child.stdout }).once("line", resolve),
  );
  const line = await Promise.race([first, ended.then(() => undefined)]);
  if (line === undefined) throw new Error(`${args[0]} ended and said nothing`);
  const dispose = () => {
    child.kill();
    return ended;
  };
  return { ...JSON.parse(line), [Symbol.asyncDispose]: dispose };
}

/** {issuer}: the authorization server; `env` as authority.mjs says. */
export const authority = (env) => start(process.execPath, [path("authority.mjs")], env);

/** {url}: the FastMCP server that takes tokens of `issuer`. */
export const protectedServer = (issuer, env) => start(PYTHON, [path("protected.py"), issuer], env);

/** {url}: a guard before the MCP server at `serverUrl`; `env` as guard.mjs says. */
export const guard = (issuer, serverUrl, env) =>
  start(process.execPath, [path("guard.mjs"), issuer, serverUrl], env);

/** What browser.mjs says: {url, text}. */
export async function browse(url, options = {}) {
  const args = Object.entries(options).map(([name, value]) => `--${name}=${value}`);
  const { stdout } = await promisify(execFile)(process.execPath, [path("browser.mjs"), url, ...args]);
  return JSON.parse(stdout);
}
