// The official TypeScript client on a union with a server that speaks in another's name. Prints what it was shown.
// Usage: hostile.mjs URL
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

const KEY = "bowline/server";
const capabilities = { sampling: {}, elicitation: { form: {}, url: {} } };
const client = new Client({ name: "interop", version: "0" }, { capabilities });
const seen = { prompts: [], whose: [] };
const note = (params) => seen.whose.push(params._meta?.[KEY] ?? null);
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  note(params);
  seen.prompts.push(params.message);
  return { action: "decline" };
});
client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
  note(params);
  return { role: "assistant", model: "interop", content: { type: "text", text: "" } };
});
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => note(params));
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
seen.instructions = client.getInstructions();
const { tools } = await client.listTools();
seen.tools = tools.map(({ name }) => name);
const odd = seen.tools.find((name) => name.startsWith("weather__bad_name"));
for (const name of [odd, "bank__ask"]) {
  note(await client.callTool({ name, arguments: {} }));
}
console.log(JSON.stringify(seen));
await client.close();
process.exit(0);
