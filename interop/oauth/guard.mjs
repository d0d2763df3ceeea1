// Makes a protected resource of any MCP server on this machine, such as the rmcp fixture server: a
// proxy that lets a request through only with a JWT that the authorization server signed for it.
//
// Usage: guard.mjs ISSUER SERVER_URL
// Once ready it prints one line: {"url": "http://127.0.0.1:PORT/PATH"}. Environment, all optional:
//   PORT        the port; any free one by default
//   RESOURCE    the resource's identifier, if it is not the printed URL (replicas share one)
//   CHALLENGE   "off" for a 401 without WWW-Authenticate
//   GUARD_LOG   file: a JSON line for each request: {"method", "status", "sub"}
import { appendFileSync } from "node:fs";
import { createServer, request as send } from "node:http";
import { buffer } from "node:stream/consumers";
import { createRemoteJWKSet, jwtVerify } from "jose";

const [issuer, serverUrl] = process.argv.slice(2);
const { PORT = "0", CHALLENGE = "on", GUARD_LOG } = process.env;
const SCOPE = "mcp";
const server = new URL(serverUrl);
const METADATA = `/.well-known/oauth-protected-resource${server.pathname}`;
const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
let own, resource;

/** The claims of a good token, or why there are none. */
async function claimsOf({ authorization = "" }) {
  const token = authorization.match(/^Bearer (\S+)$/i)?.[1];
  if (!token) return { status: 401 };
  try {
    const { payload } = await jwtVerify(token, keys, { issuer, audience: resource });
    const enough = payload.scope?.split(" ").includes(SCOPE);
    return enough ? { payload } : { status: 403, error: "insufficient_scope" };
  } catch {
    return { status: 401, error: "invalid_token" };
  }
}

function refuse(response, { status, error }) {
  const parts = [`resource_metadata="${own.origin}${METADATA}"`, `scope="${SCOPE}"`];
  if (error) parts.unshift(`error="${error}"`);
  const headers = CHALLENGE === "off" ? {} : { "www-authenticate": `Bearer ${parts.join(", ")}` };
  response.writeHead(status, headers).end();
}

function pass(request, body, response) {
  const { authorization, ...headers } = { ...request.headers, host: server.host };
  const options = { method: request.method, headers };
  const forwarded = send(new URL(request.url, server), options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.pipe(response);
    answer.on("error", () => response.destroy());
  });
  // The server is away, or the client is: either way the other side learns it by a broken connection.
  forwarded.on("error", () => response.destroy());
  response.on("close", () => forwarded.destroy());
  forwarded.end(body);
}

function methodIn(body) {
  try {
    return JSON.parse(body).method;
  } catch {
    return undefined;
  }
}

async function answer(request, response) {
  if (request.url === METADATA) {
    const published = { resource, authorization_servers: [issuer], scopes_supported: [SCOPE] };
    response.setHeader("content-type", "application/json");
    return response.end(JSON.stringify(published));
  }
  if (new URL(request.url, own).pathname !== server.pathname) return response.writeHead(404).end();
  const body = await buffer(request);
  const verdict = await claimsOf(request.headers);
  if (GUARD_LOG)
    response.on("close", () => {
      const method = methodIn(body) ?? request.method;
      const entry = { method, status: response.statusCode, sub: verdict.payload?.sub };
      appendFileSync(GUARD_LOG, JSON.stringify(entry) + "\n");
    });
  if (verdict.payload) pass(request, body, response);
  else refuse(response, verdict);
}

const guard = createServer((request, response) =>
  answer(request, response).catch(() => response.destroy()),
);
guard.listen(Number(PORT), "127.0.0.1", () => {
  own = new URL(server.pathname, `http://127.0.0.1:${guard.address().port}`);
  resource = process.env.RESOURCE ?? own.href;
  console.log(JSON.stringify({ url: own.href }));
});
