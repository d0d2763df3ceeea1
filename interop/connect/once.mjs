// The official TypeScript client starts a program, opens a session with it over stdio, and calls the tool `count`
// twice. For programs that connect to the demo server of `bowline serve`.
//
// Usage: once.mjs COMMAND ARGUMENT...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "once", version: "0" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "ignore" }));
const texts = [];
for (let call = 0; call < 2; call += 1) {
  const result = await client.callTool({ name: "count", arguments: {} });
  texts.push(result.content[0].text);
}
await client.close();
console.log(texts.join(" "));
