// Checks the parts of this directory against each other, without Bowline: the authorization server,
// the protected servers behind it, and the browser.
//
// Usage: check.mjs [authority|protected|guard|browser]...
// The guard's check wants FIXTURE, the URL of a running fixture-server (rmcp), and says so if not.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OAuthClient, json } from "./client.mjs";
import { FormBrowser } from "./form-browser.mjs";
import { authority, browse, guard, protectedServer } from "./parts.mjs";

const REDIRECT = "http://127.0.0.1:1/callback";
const RESOURCE = "http://127.0.0.1:2/mcp";
const directory = mkdtempSync(join(tmpdir(), "oauth-"));
const lines = (name) =>
  readFileSync(join(directory, name), "utf8").trim().split("\n").map((line) => JSON.parse(line));
const step = (text) => console.log(`  ok ${text}`);
const claims = (token) => JSON.parse(Buffer.from(token.split(".")[1], "base64url"));
const stop = (url) => url.startsWith(REDIRECT);

async function metadataOf(issuer) {
  const [oauth, openid] = await Promise.all(
    ["oauth-authorization-server", "openid-configuration"].map((name) =>
      json(`${issuer}/.well-known/${name}`),
    ),
  );
  assert.equal(openid.body.issuer, issuer);
  assert.equal(oauth.body.issuer, issuer);
  return oauth.body;
}

/** Signs in with the forms; the answer of the token endpoint. */
async function signIn(client, resource, scope, account = "alice") {
  const begun = client.begin(resource, scope);
  const { url } = await new FormBrowser().open(begun.url, { account, stop });
  const answer = new URL(url).searchParams;
  assert.equal(answer.get("state"), begun.state);
  assert.equal(answer.get("iss"), client.metadata.issuer);
  const { status, body } = await client.exchange(begun, answer.get("code"));
  assert.equal(status, 200, JSON.stringify(body));
  return { ...body, begun, code: answer.get("code") };
}

async function checkAuthority() {
  const env = {
    ACCESS_TTL: "7",
    REQUESTS_LOG: join(directory, "requests"),
    SECRETS_LOG: join(directory, "secrets"),
  };
  await using server = await authority(env);
  const metadata = await metadataOf(server.issuer);
  assert.deepEqual(metadata.code_challenge_methods_supported, ["S256"]);
  assert.equal(metadata.authorization_response_iss_parameter_supported, true);
  assert.equal(metadata.client_id_metadata_document_supported, true);
  step("discovery: both documents; S256, iss and client-id metadata documents announced");

  const client = await OAuthClient.register(metadata, REDIRECT);
  step("dynamic registration of a public native client");

  const plain = client.begin(RESOURCE, "mcp", { code_challenge: "", code_challenge_method: "" });
  const refusal = await new FormBrowser().open(plain.url, { stop });
  assert.equal(new URL(refusal.url).searchParams.get("error"), "invalid_request");
  step("no sign-in without PKCE");

  const first = await signIn(client, RESOURCE, "mcp");
  const { aud, sub, exp, iat, scope } = claims(first.access_token);
  assert.deepEqual([aud, sub, scope, exp - iat], [RESOURCE, "alice", "mcp", 7]);
  step("sign-in by forms: a JWT for the resource, as short-lived as asked");

  const second = (await client.refresh(first.refresh_token, RESOURCE)).body;
  assert.equal(claims(second.access_token).aud, RESOURCE);
  assert.notEqual(second.refresh_token, first.refresh_token);
  const replayed = await client.refresh(first.refresh_token, RESOURCE);
  assert.deepEqual([replayed.status, replayed.body.error], [400, "invalid_grant"]);
  const orphaned = await client.refresh(second.refresh_token, RESOURCE);
  assert.equal(orphaned.body.error, "invalid_grant");
  step("refresh rotates; a replayed refresh token is refused and ends the whole grant");

  const third = await signIn(client, RESOURCE, "mcp mcp:admin");
  assert.equal(await client.revoke(third.refresh_token), 200);
  assert.equal((await client.refresh(third.refresh_token, RESOURCE)).body.error, "invalid_grant");
  step("revocation");

  const begun = client.begin(RESOURCE, "mcp");
  const denied = await new FormBrowser().open(begun.url, { answer: "deny", stop });
  assert.equal(new URL(denied.url).searchParams.get("error"), "access_denied");
  step("denied consent: access_denied");

  const outcomes = lines("requests")
    .filter((line) => line.endpoint === "token")
    .map((line) => `${line.grant_type} ${line.outcome} ${line.resource}`);
  const of = (grant, outcome) => `${grant} ${outcome} ${RESOURCE}`;
  assert.deepEqual(outcomes, [
    of("authorization_code", "ok"),
    of("refresh_token", "ok"),
    of("refresh_token", "invalid_grant"),
    of("refresh_token", "invalid_grant"),
    of("authorization_code", "ok"),
    of("refresh_token", "invalid_grant"),
  ]);
  const requests = readFileSync(env.REQUESTS_LOG, "utf8");
  const secrets = new Set(lines("secrets").map(({ value }) => value));
  for (const { begun, code, access_token, refresh_token } of [first, third])
    for (const value of [begun.verifier, begun.state, code, access_token, refresh_token])
      assert.ok(secrets.has(value), "a secret is not in the secrets' log");
  for (const secret of secrets) assert.ok(!requests.includes(secret), "a secret is in the log");
  step(`${outcomes.length} token requests logged, ${secrets.size} secrets kept apart`);
}

async function checkDocuments() {
  const id = "https://client.test/metadata.json";
  const document = {
    client_id: id,
    client_name: "by document",
    application_type: "native",
    redirect_uris: [REDIRECT],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
    token_endpoint_auth_method: "none",
  };
  const host = createServer((_, response) => {
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify(document));
  });
  await new Promise((resolve) => host.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${host.address().port}`;
  await using server = await authority({
    CLIENT_DOCUMENTS: JSON.stringify({ "https://client.test": origin }),
    REGISTRATION: "off",
  });
  const metadata = await metadataOf(server.issuer);
  assert.equal(metadata.registration_endpoint, undefined);
  const client = new OAuthClient(metadata, { client_id: id }, REDIRECT);
  assert.equal(claims((await signIn(client, RESOURCE, "mcp")).access_token).client_id, id);
  host.close();
  step("client-id metadata document, at an authorization server without registration");
}

const clientInfo = { name: "check", version: "0" };
const OPENING = {
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-11-25", capabilities: {}, clientInfo },
};

/** Posts one message; the response, and its one message whether in JSON or in an event. */
async function post(url, token, session, message) {
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    ...(token && { authorization: `Bearer ${token}` }),
    ...(session && { "mcp-session-id": session, "mcp-protocol-version": "2025-11-25" }),
  };
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  const response = await fetch(url, { method: "POST", headers, body });
  const text = await response.text();
  const data = text.match(/^data: ?(\{.*)$/m)?.[1] ?? text;
  return { response, message: data.startsWith("{") ? JSON.parse(data) : undefined };
}

async function checkProtected() {
  await using server = await authority({ ACCESS_TTL: "60" });
  await using mcp = await protectedServer(server.issuer);
  const bare = await post(mcp.url, null, null, OPENING);
  assert.equal(bare.response.status, 401);
  const challenge = bare.response.headers.get("www-authenticate");
  const { body: published } = await json(challenge.match(/resource_metadata="([^"]+)"/)[1]);
  assert.equal(published.resource, mcp.url);
  step(`401 with ${challenge.replace(/:\d+/g, ":PORT")}`);
  step(`published: ${JSON.stringify(published).replace(/:\d+/g, ":PORT")}`);

  const client = await OAuthClient.register(await metadataOf(server.issuer), REDIRECT);
  const foreign = await signIn(client, RESOURCE, "mcp");
  const wrong = await post(mcp.url, foreign.access_token, null, OPENING);
  assert.equal(wrong.response.status, 401);
  assert.match(wrong.response.headers.get("www-authenticate"), /error="invalid_token"/);
  step("a token for another resource is refused");

  const { access_token } = await signIn(client, mcp.url, "mcp");
  const opened = await post(mcp.url, access_token, null, OPENING);
  assert.equal(opened.response.status, 200);
  const session = opened.response.headers.get("mcp-session-id");
  await post(mcp.url, access_token, session, { method: "notifications/initialized" });
  const call = (name, args = {}, token = access_token) =>
    post(mcp.url, token, session, { id: 2, method: "tools/call", params: { name, arguments: args } });
  const text = async (...asked) => (await call(...asked)).message.result.content[0].text;
  assert.equal(await text("whoami"), "alice");
  assert.equal(await text("echo", { message: "hello" }), "hello");
  assert.deepEqual([await text("bump"), await text("bump")], ["1", "2"]);
  step("whoami, echo and bump");

  const short = await call("admin");
  assert.equal(short.response.status, 403);
  const more = short.response.headers.get("www-authenticate");
  assert.match(more, /error="insufficient_scope".*scope="mcp mcp:admin"/);
  const wider = await signIn(client, mcp.url, "mcp mcp:admin");
  assert.equal(await text("admin", {}, wider.access_token), "alice is an admin");
  step("admin: 403 insufficient_scope, then allowed with the scope");
}

async function checkGuard() {
  const fixture = process.env.FIXTURE;
  if (!fixture) return console.log("!! FIXTURE is not set: the guard is NOT checked");
  await using server = await authority({ ACCESS_TTL: "3" });
  const client = await OAuthClient.register(await metadataOf(server.issuer), REDIRECT);
  await using mute = await guard(server.issuer, fixture, { CHALLENGE: "off" });
  const unexplained = await post(mute.url, null, null, OPENING);
  assert.equal(unexplained.response.status, 401);
  assert.equal(unexplained.response.headers.get("www-authenticate"), null);
  step("401 without a challenge");

  const GUARD_LOG = join(directory, "guard");
  await using mcp = await guard(server.issuer, fixture, { GUARD_LOG });
  const { response: bare } = await post(mcp.url, null, null, OPENING);
  const challenge = bare.headers.get("www-authenticate");
  const { body: published } = await json(challenge.match(/resource_metadata="([^"]+)"/)[1]);
  assert.equal(published.resource, mcp.url);
  step(`401 with ${challenge.replace(/:\d+/g, ":PORT")}`);

  const { access_token } = await signIn(client, mcp.url, "mcp", "bob");
  const opened = await post(mcp.url, access_token, null, OPENING);
  const session = opened.response.headers.get("mcp-session-id");
  await post(mcp.url, access_token, session, { method: "notifications/initialized" });
  const count = { id: 2, method: "tools/call", params: { name: "count", arguments: {} } };
  const counted = await post(mcp.url, access_token, session, count);
  assert.equal(counted.message.result.content[0].text, "1");
  const { exp } = claims(access_token);
  await new Promise((resolve) => setTimeout(resolve, exp * 1000 - Date.now() + 1));
  const late = await post(mcp.url, access_token, session, count);
  assert.equal(late.response.status, 401);
  assert.match(late.response.headers.get("www-authenticate"), /error="invalid_token"/);
  const seen = lines("guard").map(({ method, status, sub }) => `${method} ${status} ${sub}`);
  assert.deepEqual(seen, [
    "initialize 401 undefined",
    "initialize 200 bob",
    "notifications/initialized 202 bob",
    "tools/call 200 bob",
    "tools/call 401 undefined",
  ]);
  step("a token opens the rmcp server, until it expires");
}

async function checkBrowser() {
  await using server = await authority({});
  const client = await OAuthClient.register(await metadataOf(server.issuer), REDIRECT);
  const landing = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<p>You may close this page.</p>");
  });
  await new Promise((resolve) => landing.listen(0, "127.0.0.1", resolve));
  client.redirectUri = `http://127.0.0.1:${landing.address().port}/callback`;
  const begun = client.begin(RESOURCE, "mcp");
  const screenshot = join(directory, "end.png");
  const seen = await browse(begun.url, { account: "bob", screenshot });
  const code = new URL(seen.url).searchParams.get("code");
  assert.equal(seen.text, "You may close this page.");
  const { body } = await client.exchange(begun, code);
  assert.equal(claims(body.access_token).sub, "bob");
  assert.ok(readFileSync(screenshot).length > 1000);
  step("Chromium signs in, allows, and follows the redirect");
  const denied = await browse(client.begin(RESOURCE, "mcp").url, { answer: "deny" });
  assert.equal(new URL(denied.url).searchParams.get("error"), "access_denied");
  step("Chromium denies");
  client.redirectUri = REDIRECT;
  const courier = await browse(client.begin(RESOURCE, "mcp").url, { stop: REDIRECT });
  assert.ok(new URL(courier.url).searchParams.get("code"));
  step("Chromium stops at a redirect URI where nobody listens");
  landing.close();
}

const checks = {
  authority: [checkAuthority, checkDocuments],
  protected: [checkProtected],
  guard: [checkGuard],
  browser: [checkBrowser],
};
const wanted = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(checks);
try {
  for (const name of wanted) {
    console.log(name);
    for (const check of checks[name]) await check();
  }
} finally {
  rmSync(directory, { recursive: true });
}
