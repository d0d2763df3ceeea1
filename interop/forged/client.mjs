// The official TypeScript client on a server that forges.
//
// Usage: client.mjs URL TOOL CALLS
import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, tool, calls] = process.argv.slice(2);
const client = new Client({ name: "forged", version: "1" }, { capabilities: { elicitation: {} } });
const prompts = [];
client.setRequestHandler("elicitation/create", (request) => {
  prompts.push(request.params.message);
  throw new Error("nobody asks");
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
for (let number = 0; number < Number(calls); number += 1) {
  const called = await client.callTool({ name: tool, arguments: { say: `own ${number}` } });
  assert.deepEqual(called.content, [{ type: "text", text: `own ${number}` }]);
}
assert.deepEqual(prompts, []);
await client.close();
