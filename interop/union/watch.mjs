// The same as watch.py with the official TypeScript client.
//
// Usage: watch.mjs ORIGIN SERVER...
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [origin, ...servers] = process.argv.slice(2);
let wanted;
let changed;
const rearm = () => (changed = new Promise((resolve) => (wanted = resolve)));
process.on("SIGUSR1", () => wanted());

async function opened(url) {
  const capabilities = { elicitation: { form: {}, url: {} } };
  const client = new Client({ name: "interop", version: "1" }, { capabilities });
  client.setNotificationHandler("notifications/tools/list_changed", () => wanted());
  client.setRequestHandler("elicitation/create", ({ params }) => {
    console.log("wrong: asked", JSON.stringify(params));
    return { action: "decline" };
  });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

/** All pages, one by one: the client would join them on its own, and keep `_meta` of the first. */
async function listed(client) {
  const [names, missing] = [[], {}];
  let cursor;
  do {
    const page = await client.request({ method: "tools/list", params: cursor ? { cursor } : {} });
    names.push(...page.tools.map((tool) => tool.name));
    for (const [server, { state, reason }] of Object.entries(page._meta?.["bowline/servers"] ?? {})) {
      missing[server] = [state, reason ?? null];
    }
    cursor = page.nextCursor;
  } while (cursor);
  return { names, missing };
}

async function call(client, tool) {
  try {
    const told = await client.callTool({ name: tool, arguments: { message: tool } });
    if (told.content[0].text !== `Echo: ${tool}`) console.log("wrong:", JSON.stringify(told));
  } catch (error) {
    console.log(`wrong: ${tool}: ${error}`);
  }
}

const seconds = (began) => (performance.now() - began) / 1000;

rearm();
const alone = {};
for (const server of servers) {
  const client = await opened(`${origin}/mcp/${server}`);
  alone[server] = (await listed(client)).names;
  await client.transport.terminateSession();
  await client.close();
}
console.log(JSON.stringify({ alone }));

const began = performance.now();
const client = await opened(`${origin}/mcp`);
console.log(`opened in ${seconds(began).toFixed(3)} s`);
for (;;) {
  rearm();
  const began = performance.now();
  const sight = { ...(await listed(client)), seconds: seconds(began) };
  for (const server of ["ev-http", "ev-stdio"]) await call(client, `${server}__echo`);
  console.log(JSON.stringify(sight));
  await changed;
}
