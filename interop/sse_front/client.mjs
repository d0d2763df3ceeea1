// The official TypeScript client over HTTP+SSE, with what a server may ask of it.
//
// Usage: client.mjs URL
import assert from "node:assert/strict";

import { Client, SSEClientTransport } from "@modelcontextprotocol/client";

const [url] = process.argv.slice(2);
const client = new Client(
  { name: "interop", version: "1" },
  { capabilities: { sampling: {}, roots: {} } },
);
client.setRequestHandler("roots/list", () => ({
  roots: [{ uri: "file:///interop/root", name: "interop root" }],
}));
client.setRequestHandler("sampling/createMessage", () => ({
  role: "assistant",
  model: "m",
  content: { type: "text", text: "sampled here" },
}));
await client.connect(new SSEClientTransport(new URL(url)));
const text = (result) => result.content.map((part) => part.text ?? "").join("");

const { tools } = await client.listTools();
assert(tools.some((tool) => tool.name === "echo"));
const told = await Promise.all(
  Array.from({ length: 10 }, (_, n) =>
    client.callTool({ name: "echo", arguments: { message: `grüße ${n}` } }),
  ),
);
told.forEach((result, n) => assert.match(text(result), new RegExp(`grüße ${n}`)));

const sampled = await client.callTool({
  name: "trigger-sampling-request",
  arguments: { prompt: "x", maxTokens: 10 },
});
assert.match(text(sampled), /sampled here/);

const heard = [];
await client.callTool(
  { name: "trigger-long-running-operation", arguments: { duration: 1, steps: 3 } },
  { onprogress: (progress) => heard.push(progress) },
);
assert(heard.length > 0, "no progress");
await client.close();
process.exit(0);
