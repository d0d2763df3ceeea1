// The official TypeScript client that finds out by itself which era a server speaks.
//
// Usage: client.mjs URL
import assert from "node:assert/strict";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const posts = [];
const watched = async (url, init = {}) => {
  const response = await fetch(url, init);
  if (init.method === "POST") posts.push([JSON.parse(init.body).method, response.status]);
  return response;
};

const client = new Client(
  { name: "modern", version: "0" },
  { capabilities: {}, versionNegotiation: { mode: "auto" } },
);
await client.connect(
  new StreamableHTTPClientTransport(new URL(process.argv[2]), { fetch: watched }),
);
const { tools } = await client.listTools();
assert.ok(tools.some(({ name }) => name === "echo"));
const called = await client.callTool({ name: "echo", arguments: { message: "hello" } });
assert.match(JSON.stringify(called.content), /hello/);
await client.close();

assert.deepEqual(posts[0], ["server/discover", 400]);
assert.deepEqual(
  posts.filter(([method]) => method === "initialize"),
  [["initialize", 200]],
);
