// The official TypeScript client in a web page: Debian's Chromium loads it from one origin and has it
// talk to the MCP server at URL, which is another. Prints one line of JSON: what the page saw.
//
// Usage: page.mjs URL [--origin=HOST] [--port=PORT] [--header=NAME:VALUE]
// HOST is what the page's own address has for this machine (localhost). CHROMIUM names another executable.
import { createReadStream } from "node:fs";
import { createServer } from "node:http";
import { join, normalize } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    origin: { type: "string", default: "localhost" },
    port: { type: "string", default: "0" },
    header: { type: "string" },
  },
});
const url = positionals[0];
const MODULES = fileURLToPath(new URL("../node_modules", import.meta.url));
// What the packages export to browsers.
const imports = {
  "@modelcontextprotocol/client": "/@modelcontextprotocol/client/dist/index.mjs",
  "@modelcontextprotocol/client/_shims": "/@modelcontextprotocol/client/dist/shimsBrowser.mjs",
  "@modelcontextprotocol/core/internal": "/@modelcontextprotocol/core/dist/internal.mjs",
  "zod/v4": "/zod/v4/index.js",
  "pkce-challenge": "/pkce-challenge/dist/index.browser.js",
  eventsource: "/eventsource/dist/index.js",
  "eventsource-parser": "/eventsource-parser/dist/index.js",
  "eventsource-parser/stream": "/eventsource-parser/dist/stream.js",
};
const html = `<!doctype html><title>a client</title>
<script type="importmap">${JSON.stringify({ imports })}</script>`;

const server = createServer((request, response) => {
  const path = normalize(new URL(request.url, "http://page").pathname);
  if (path === "/") return response.setHeader("content-type", "text/html").end(html);
  response.setHeader("content-type", "text/javascript");
  createReadStream(join(MODULES, path))
    .on("error", () => response.writeHead(404).end())
    .pipe(response);
});
await new Promise((resolve) => server.listen(Number(values.port), "127.0.0.1", resolve));
const at = `http://${values.origin}:${server.address().port}/`;

/** What the page does; everything in it runs in the browser. */
async function scenario({ url, header }) {
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const headers = header ? Object.fromEntries([header.split(/:(.*)/s).slice(0, 2)]) : {};
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  const client = new Client({ name: "page", version: "1" });
  await client.connect(transport);
  const hasSession = Boolean(transport.sessionId);
  const { tools } = await client.listTools();
  const echoed = await client.callTool({ name: "echo", arguments: { message: "over here" } });
  const seen = [];
  const slow = { name: "trigger-long-running-operation", arguments: { duration: 1, steps: 2 } };
  const onprogress = ({ progress }) => seen.push(progress);
  await client.callTool(slow, { onprogress });
  // What it was refused, it can read.
  const refusal = await fetch(url, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json" },
    body: "{}",
  });
  await transport.terminateSession();
  await client.close();
  return {
    hasSession,
    tools: tools.length,
    echoed: echoed.content[0].text,
    progress: seen.length,
    refusal: refusal.status >= 400,
  };
}

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  // Root, as in most containers, has no sandbox. Nothing but this machine has an address.
  args: [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP app.test 127.0.0.1, MAP localhost 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
  ],
  headless: true,
});
try {
  const page = await browser.newPage();
  await page.goto(at);
  const saw = await page
    .evaluate(scenario, { url, header: values.header })
    .catch((error) => ({ failed: String(error).split("\n")[0] }));
  console.log(JSON.stringify({ origin: new URL(at).origin, ...saw }));
} finally {
  await browser.close();
  server.close();
}
