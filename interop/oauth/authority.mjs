// A real authorization server (npm oidc-provider) on 127.0.0.1, for the OAuth tests. It signs in
// whoever asks, by a login and a consent page that a browser can click, and issues JWT access
// tokens for the resource asked for, with refresh tokens that rotate.
//
// Once ready it prints one line: {"issuer": "http://127.0.0.1:PORT"}. Environment, all optional:
//   PORT              the port; any free one by default
//   ACCESS_TTL        seconds that an access token lives (300)
//   SCOPES            scopes that a resource has, separated by spaces ("mcp mcp:admin")
//   CLIENTS           clients known beforehand, a JSON array of client metadata
//   REGISTRATION      "off" for no dynamic registration
//   PAGES             "elsewhere": the pages are at another origin (another port), to which the
//                     authorization endpoint redirects, as one does that has people sign in elsewhere
//   PKCE              "unlisted": required all the same, and not listed in the documents
//   CLIENT_DOCUMENTS  {"https://NAME": "http://127.0.0.1:PORT"}: where client-id metadata documents
//                     of that origin are fetched instead (the library accepts only https ids)
//   REQUESTS_LOG      file: a JSON line for each request to an endpoint, without secrets
//   SECRETS_LOG       file: a JSON line for each secret seen, for the tests' leak scan only
import { generateKeyPairSync } from "node:crypto";
import { appendFileSync } from "node:fs";
import { createServer } from "node:http";
import Provider from "oidc-provider";
import { interactions } from "./interactions.mjs";

const {
  PORT = "0",
  ACCESS_TTL = "300",
  SCOPES = "mcp mcp:admin",
  CLIENTS = "[]",
  REGISTRATION = "on",
  PAGES = "here",
  PKCE = "listed",
  CLIENT_DOCUMENTS = "{}",
  REQUESTS_LOG,
  SECRETS_LOG,
} = process.env;

// Where the pages are; empty for the issuer's own origin.
let pagesOrigin = "";
const DAY = 24 * 60 * 60;
const documents = JSON.parse(CLIENT_DOCUMENTS);

function signingKey() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { ...privateKey.export({ format: "jwk" }), use: "sig", alg: "RS256", kid: "only" };
}

/** The library asks for documents with a connection that refuses loopback, so `dispatcher` goes. */
function fetchDocument(url, { dispatcher, ...options }) {
  const asked = new URL(url);
  const origin = documents[asked.origin];
  if (!origin) return fetch(url, { ...options, dispatcher });
  return fetch(new URL(asked.pathname + asked.search, origin), options);
}

const configuration = {
  clients: JSON.parse(CLIENTS),
  cookies: { keys: ["not a secret: the accounts are not either"] },
  jwks: { keys: [signingKey()] },
  scopes: ["openid", "offline_access", ...SCOPES.split(" ")],
  findAccount: (_, accountId) => ({ accountId, claims: () => ({ sub: accountId }) }),
  fetch: fetchDocument,
  interactions: { url: (_, interaction) => `${pagesOrigin}/interaction/${interaction.uid}` },
  // Clients of MCP seldom ask for offline_access, yet expect a refresh token.
  issueRefreshToken: (_, client) => client.grantTypeAllowed("refresh_token"),
  rotateRefreshToken: true,
  pkce: { required: () => true },
  ttl: {
    AuthorizationCode: 60,
    Grant: DAY,
    Interaction: 600,
    RefreshToken: DAY,
    Session: DAY,
    AccessToken: Number(ACCESS_TTL),
    IdToken: 300,
  },
  features: {
    devInteractions: { enabled: false },
    clientIdMetadataDocument: {
      enabled: true,
      ack: "draft-02",
      cacheDuration: { min: 1, max: 1 },
    },
    registration: { enabled: REGISTRATION !== "off" },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: SCOPES,
        audience: resource,
        accessTokenFormat: "jwt",
        accessTokenTTL: Number(ACCESS_TTL),
        jwt: { sign: { alg: "RS256" } },
      }),
    },
  },
};

function append(file, entry) {
  if (file) appendFileSync(file, JSON.stringify(entry) + "\n");
}

const SECRET = [
  ["client_secret", "registration_access_token"],
  ["code", "code_verifier", "state"],
  ["access_token", "refresh_token", "id_token", "token"],
].flat();

/** What is secret in a request's parameters, its answer, or the query of its redirect. */
function logSecrets(...places) {
  for (const place of places)
    for (const kind of SECRET)
      if (typeof place?.[kind] === "string") append(SECRETS_LOG, { kind, value: place[kind] });
}

const LOGGED = ["authorization", "resume", "token", "registration", "revocation"];

async function log(ctx, next) {
  await next();
  const endpoint = ctx.oidc?.route;
  if (!LOGGED.includes(endpoint)) return;
  const asked = ctx.oidc.params ?? ctx.oidc.body ?? {};
  const answer = ctx.body && typeof ctx.body === "object" ? ctx.body : {};
  const location = URL.parse(ctx.response.get("location"), ctx.oidc.issuer);
  const redirect = Object.fromEntries(location?.searchParams ?? []);
  append(REQUESTS_LOG, {
    endpoint,
    grant_type: asked.grant_type,
    client_id: ctx.oidc.client?.clientId ?? asked.client_id ?? answer.client_id,
    resource: asked.resource,
    scope: asked.scope,
    application_type: asked.application_type,
    status: ctx.status,
    outcome: answer.error ?? redirect.error ?? "ok",
  });
  logSecrets(asked, answer, redirect);
}

/** Leaves the methods of PKCE out of the documents. */
async function hidePkce(ctx, next) {
  await next();
  if (PKCE === "unlisted") delete ctx.body?.code_challenge_methods_supported;
}

const server = createServer((request, response) => answer(request, response));
let answer;
server.listen(Number(PORT), "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, configuration);
  provider.use(log);
  provider.use(hidePkce);
  provider.on("server_error", (_, error) => console.error(error));
  const rest = provider.callback();
  const pages = interactions(provider);
  answer = (request, response) =>
    (request.url.startsWith("/interaction/") ? pages : rest)(request, response);
  const ready = () => console.log(JSON.stringify({ issuer }));
  if (PAGES !== "elsewhere") return ready();
  // Cookies know no ports, so those of the issuer come along.
  const elsewhere = createServer(pages);
  elsewhere.listen(0, "127.0.0.1", () => {
    pagesOrigin = `http://127.0.0.1:${elsewhere.address().port}`;
    ready();
  });
});
