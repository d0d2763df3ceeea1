// A server of the TypeScript SDK over stdio, with fields in its definitions that nobody knows.
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import {
  CallToolRequestSchema,
  CompleteRequestSchema,
  GetPromptRequestSchema,
  ListPromptsRequestSchema,
  ListToolsRequestSchema,
} from "@modelcontextprotocol/sdk/types.js";

const server = new Server(
  { name: "typescript", version: "1" },
  { capabilities: { tools: {}, prompts: {}, completions: {} }, instructions: "Reverse what you like." },
);
const tool = {
  name: "reverse",
  title: "Umgekehrt",
  description: "Reverses a text",
  inputSchema: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  outputSchema: { type: "object", properties: { reversed: { type: "string" } } },
  icons: [{ src: "data:image/png;base64,AA==", theme: "dark", future: true }],
  _meta: { "interop/future": { name: "not the name" } },
  future: ["field", { nested: 1e2 }],
};
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [tool] }));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
  const reversed = [...params.arguments.text].reverse().join("");
  return { content: [{ type: "text", text: reversed }], structuredContent: { reversed } };
});
const prompt = { name: "ask", arguments: [{ name: "city" }], future: 1 };
server.setRequestHandler(ListPromptsRequestSchema, () => ({ prompts: [prompt] }));
server.setRequestHandler(GetPromptRequestSchema, ({ params }) => ({
  messages: [{ role: "user", content: { type: "text", text: `Where is ${params.arguments.city}?` } }],
}));
server.setRequestHandler(CompleteRequestSchema, ({ params }) => {
  const values = ["Paris", "Parma", "Prag"].filter((city) => city.startsWith(params.argument.value));
  return { completion: { values } };
});
await server.connect(new StdioServerTransport());
