// Calls the official TypeScript client in a loop until it is told to stop (SIGTERM), then prints
// what became of the calls, as one line of JSON: {"CALL": {"OUTCOME": COUNT}}.
//
// Usage: client.mjs URL [once]
// With `once` it lists the tools when it begins, and not again.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const CALL_SECONDS = 40;
const options = { timeout: CALL_SECONDS * 1000 };
const outcomes = {};
let stopping = false;
process.on("SIGTERM", () => (stopping = true));

function count(name, outcome) {
  outcomes[name] ??= {};
  outcomes[name][outcome] = (outcomes[name][outcome] ?? 0) + 1;
}

/** What an error is called in the table: the JSON-RPC code if there is one. */
function nameOf(error) {
  const text = `${error.message} ${JSON.stringify(error.data ?? "")}`;
  const code = text.match(/"code":\s*(-?\d+)/)?.[1] ?? error.code;
  return Number(code) === -31001 ? "-31001" : `${code} ${error.message}`.slice(0, 120);
}

async function open(url) {
  const client = new Client(
    { name: "bowline-kill", version: "0" },
    // The newest revision has no sessions; this asks for those that have.
    { capabilities: {}, versionNegotiation: { mode: "legacy" } },
  );
  client.onerror = () => {};
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport, options);
  // A client that has seen the list knows what may be called twice, and so does the gateway.
  await client.listTools(undefined, options);
  return client;
}

const calls = {
  ping: (client) => client.ping(options),
  "tools/list": (client) => client.listTools(undefined, options),
  echo: (client, number) =>
    client.callTool({ name: "echo", arguments: { message: `n${number}` } }, options),
  toggle: (client) =>
    client.callTool({ name: "toggle-simulated-logging", arguments: {} }, options),
};

if (process.argv[3] === "once") delete calls["tools/list"];

/** Only `echo` answers what it was asked. */
function check(name, number, result) {
  if (name === "echo" && result.content[0].text !== `Echo: n${number}`)
    throw new Error(`another's answer: ${JSON.stringify(result)}`);
}

let client = await open(process.argv[2]);
console.log("ready");
for (let number = 0; !stopping; number++) {
  for (const [name, call] of Object.entries(calls)) {
    try {
      check(name, number, await call(client, number));
      count(name, "ok");
    } catch (error) {
      const outcome = nameOf(error);
      count(name, outcome);
      if (outcome === "-31001" || stopping) continue;
      // A session that is gone stays gone; go on with another one to see the rest.
      client.close().catch(() => {});
      client = await open(process.argv[2]).catch(() => client);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
console.log(JSON.stringify(outcomes));
process.exit(0);
