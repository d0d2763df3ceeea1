// The same as client.py with the official TypeScript client.
//
// Usage: client.mjs COMMAND ARGUMENT...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const CALL_SECONDS = 150;
const options = { timeout: CALL_SECONDS * 1000 };
const outcomes = {};
const bumped = [];
let longest = 0;
let stopping = false;
process.on("SIGTERM", () => (stopping = true));

function count(name, outcome) {
  outcomes[name] ??= {};
  outcomes[name][outcome] = (outcomes[name][outcome] ?? 0) + 1;
}

/** Fails unless the result says this text. */
function expect(result, text) {
  if (!result.content[0].text.endsWith(text))
    throw new Error(`another's answer: ${JSON.stringify(result)}`);
}

const tool = (client, name, args) => client.callTool({ name, arguments: args }, options);
const calls = {
  ping: (client) => client.ping(options),
  "tools/list": (client) => client.listTools(undefined, options),
  echo: async (client, text) => expect(await tool(client, "echo", { message: text }), text),
  slow: async (client, text) =>
    expect(await tool(client, "slow", { message: text, seconds: 0.5 }), text),
  bump: async (client, text) => {
    expect(await tool(client, "bump", { key: text }), text);
    bumped.push(text);
  },
  toggle: (client) => tool(client, "toggle-simulated-logging", {}),
};

const client = new Client(
  { name: "bowline-connect", version: "0" },
  // The newest revision has no sessions; this asks for those that have.
  { capabilities: {}, versionNegotiation: { mode: "legacy" } },
);
const [command, ...args] = process.argv.slice(2);
await client.connect(new StdioClientTransport({ command, args, env: process.env }), options);
const { tools } = await client.listTools(undefined, options);
const known = new Set(["ping", "tools/list", ...tools.map((one) => one.name)]);
if (!known.has("bump")) known.add("toggle");
console.log("ready");
for (let number = 0; !stopping; number++) {
  for (const [name, call] of Object.entries(calls).filter(([name]) => known.has(name))) {
    const begun = performance.now();
    try {
      await call(client, `ts-${process.pid}-${number}`);
      count(name, "ok");
    } catch (error) {
      count(name, error.code === -31001 ? "-31001" : `${error.code} ${error.message}`.slice(0, 160));
    }
    longest = Math.max(longest, (performance.now() - begun) / 1000);
  }
  console.log(`round ${number}`);
  await new Promise((resolve) => setTimeout(resolve, 50));
}
await client.close();
console.log(JSON.stringify({ outcomes, bumped, longest: Math.round(longest * 10) / 10 }));
