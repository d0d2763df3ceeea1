// The "client" that the conformance suite tests: Bowline, which does the OAuth, and in front of it a
// client that knows nothing of OAuth but opens the links it is given.
//
// The suite calls it as: conformance-driver.mjs SERVER_URL, with MCP_CONFORMANCE_SCENARIO and, in
// some scenarios, MCP_CONFORMANCE_CONTEXT. BOWLINE is the path of the binary.
// Its exit code is 0 when all requests were answered; scenarios in which the right thing is to give
// up allow others.
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { FormBrowser } from "./form-browser.mjs";

const { BOWLINE, MCP_CONFORMANCE_SCENARIO: scenario, MCP_CONFORMANCE_CONTEXT = "{}" } = process.env;
const context = JSON.parse(MCP_CONFORMANCE_CONTEXT);
const upstream = process.argv.at(-1);

const NAME = "suite";
const VERSION = "2025-11-25";
// What the scenario wants to see as client id; nobody fetches it.
const CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json";
const SIGN_IN_NEEDED = -31003;
const SIGN_IN_TOOL = "sign_in";
// More than the suite tolerates, so that it is Bowline that must stop asking.
const MAX_SIGN_INS = 6;

/** The configuration of Bowline; a JSON string is a TOML string too. */
function configuration() {
  const oauth = { flow: "managed", allow_private: true };
  if (scenario === "auth/basic-cimd") oauth.client_metadata_url = CLIENT_METADATA_URL;
  if (context.client_id) oauth.client_id = context.client_id;
  if (context.client_secret) oauth.client_secret = context.client_secret;
  // A secret is for one authorization server.
  if (context.issuer) oauth.issuer = context.issuer;
  return [
    'listen = "127.0.0.1:0"',
    'admin = "off"',
    'store.kind = "memory"',
    `[servers.${NAME}]`,
    `url = ${JSON.stringify(upstream)}`,
    // A server that does not know `initialize` is not to be asked for it for long.
    'recovery_budget = "1s"',
    `[servers.${NAME}.oauth]`,
    ...Object.entries(oauth).map(([key, value]) => `${key} = ${JSON.stringify(value)}`),
  ].join("\n");
}

/** What Bowline said, all of it. */
const lines = [];

/** Starts Bowline; {url, stop}. What it says to operators goes to standard error, which the suite keeps. */
async function gateway() {
  const directory = mkdtempSync(join(tmpdir(), "driver-"));
  const config = join(directory, "bowline.toml");
  writeFileSync(config, configuration(), { mode: 0o600 });
  const child = spawn(BOWLINE, ["serve", "--config", config], {
    env: { ...process.env, XDG_STATE_HOME: directory, HOME: directory, RUST_LOG: "trace" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = await new Promise((resolve, reject) => {
    for (const input of [child.stdout, child.stderr])
      createInterface({ input }).on("line", (line) => {
        lines.push(line);
        if (!/ (TRACE|DEBUG) /.test(line)) console.error(line);
        const found = line.match(`http://[0-9.:]+/mcp/${NAME}(?![\\w/])`);
        if (found) resolve(found[0]);
      });
    ended.then((code) => reject(new Error(`bowline ended: ${code}`)));
  });
  const stop = async () => {
    // A graceful end would wait for connections that `fetch` keeps.
    child.kill("SIGKILL");
    await ended;
    rmSync(directory, { recursive: true });
  };
  return { url, stop };
}

class ThinClient {
  #url;
  #session;
  #id = 0;
  #browser = new FormBrowser();
  #signIns = 0;

  constructor(url) {
    this.#url = url;
  }

  async open() {
    const clientInfo = { name: "conformance-driver", version: "0" };
    await this.#post("initialize", { protocolVersion: VERSION, capabilities: {}, clientInfo });
    await this.#post("notifications/initialized", undefined, true);
  }

  /** The result of a request, after as many sign-ins as it takes. */
  async request(method, params = {}) {
    for (;;) {
      const { result, error } = await this.#post(method, params);
      const link = error ? this.#linkIn(error) : await this.#linkBehind(method, result);
      if (!link && error) throw new Error(`${method}: ${error.code} ${error.message}`);
      if (!link) return result;
      await this.#follow(link);
    }
  }

  close() {
    return fetch(this.#url, { method: "DELETE", headers: this.#headers() });
  }

  #linkIn(error) {
    return error.code === SIGN_IN_NEEDED && error.data?.url;
  }

  /** A list that has the `sign_in` tool is Bowline's own; the tool says where to sign in. */
  async #linkBehind(method, result) {
    if (method !== "tools/list") return;
    if (!result.tools.some((tool) => tool.name === SIGN_IN_TOOL)) return;
    const called = await this.#post("tools/call", { name: SIGN_IN_TOOL, arguments: {} });
    const link = called.result?.content[0].text.match(/https?:\/\/\S+/)?.[0];
    if (!link) throw new Error(`no link from ${SIGN_IN_TOOL}: ${JSON.stringify(called)}`);
    return link;
  }

  /** What was secret in the addresses that the browser saw. */
  secrets() {
    const seen = this.#browser.visited.map((url) => new URL(url).searchParams);
    const states = seen.map((query) => query.get("state")).filter(Boolean);
    const flows = states.map((state) => createHash("sha256").update(state).digest("hex").slice(0, 32));
    const codes = seen.map((query) => query.get("code")).filter(Boolean);
    return [...states, ...flows, ...codes, context.client_secret].filter((it) => it?.length > 5);
  }

  async #follow(link) {
    if (++this.#signIns > MAX_SIGN_INS) throw new Error("asked to sign in again and again");
    const { status, text } = await this.#browser.open(link);
    console.error(`sign-in ${this.#signIns}: ${status}`);
    if (status >= 400) throw new Error(`the sign-in failed: ${status} ${text}`);
  }

  #headers() {
    return {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...(this.#session && {
        "mcp-session-id": this.#session,
        "mcp-protocol-version": VERSION,
      }),
    };
  }

  async #post(method, params, notification = false) {
    const id = notification ? undefined : ++this.#id;
    const response = await fetch(this.#url, {
      method: "POST",
      headers: this.#headers(),
      body: JSON.stringify({ jsonrpc: "2.0", id, method, params }),
    });
    this.#session ??= response.headers.get("mcp-session-id") ?? undefined;
    const text = await response.text();
    if (notification) return;
    const events = [...text.matchAll(/^data: ?(\{.*)$/gm)].map((match) => match[1]);
    const messages = (events.length ? events : [text]).map((message) => JSON.parse(message));
    const answer = messages.find((message) => message.id === id) ?? messages[0];
    console.error(`${method}: ${response.status} ${JSON.stringify(answer).slice(0, 500)}`);
    return answer;
  }
}

const { url, stop } = await gateway();
const client = new ThinClient(url);
try {
  await client.open();
  const { tools } = await client.request("tools/list");
  for (const tool of tools) await client.request("tools/call", { name: tool.name, arguments: {} });
  await client.close();
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await stop();
  // conformance.py looks for these words.
  const isTold = client.secrets().some((secret) => lines.some((line) => line.includes(secret)));
  if (isTold) console.error("a secret is in the log");
}
