// What the official TypeScript client makes of lists. Lines of standard input are lists of definitions:
// {"method": "tools/list", "key": "tools", "items": [...]}. For each, a line says which items it refuses, each alone, and
// whether it takes all of them at once.
import { createInterface } from "node:readline";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";

console.warn = () => {};

/** A client of a server that answers each list with what `result` has. */
async function connected(result) {
  const client = new Client({ name: "interop", version: "0" });
  const [own, other] = InMemoryTransport.createLinkedPair();
  other.onmessage = ({ id, method, params }) => {
    if (id === undefined) return;
    const opened = {
      protocolVersion: params?.protocolVersion,
      capabilities: { tools: {}, prompts: {}, resources: {} },
      serverInfo: { name: "interop", version: "0" },
    };
    other.send({ jsonrpc: "2.0", id, result: method === "initialize" ? opened : result.now });
  };
  await other.start();
  await client.connect(own);
  return client;
}

const METHODS = {
  "tools/list": "listTools",
  "prompts/list": "listPrompts",
  "resources/list": "listResources",
  "resources/templates/list": "listResourceTemplates",
};
const result = {};
const client = await connected(result);
async function takes(method, key, items) {
  result.now = { [key]: items };
  try {
    await client[METHODS[method]]();
    return true;
  } catch {
    return false;
  }
}
for await (const line of createInterface({ input: process.stdin })) {
  const { method, key, items } = JSON.parse(line);
  const refused = [];
  for (const [index, item] of items.entries()) {
    if (!(await takes(method, key, [item]))) refused.push(index);
  }
  console.log(JSON.stringify({ refused, all: await takes(method, key, items) }));
}
await client.close();
