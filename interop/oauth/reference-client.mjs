// The official TypeScript client in Bowline's place: what the conformance suite says of it shows
// whether suite, link and redirect work here, and what a good client's marks are.
//
// The suite calls it as: reference-client.mjs SERVER_URL
import {
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { FormBrowser } from "./form-browser.mjs";

const {
  MCP_CONFORMANCE_SCENARIO: scenario,
  MCP_CONFORMANCE_CONTEXT = "{}",
  MCP_CONFORMANCE_PROTOCOL_VERSION: version,
} = process.env;
const context = JSON.parse(MCP_CONFORMANCE_CONTEXT);
const REDIRECT = "http://127.0.0.1:1/callback";
// The suite tolerates three.
const MAX_SIGN_INS = 3;

/** Keeps everything in memory, by issuer where the client tells. */
class Provider {
  redirectUrl = REDIRECT;
  clientMetadata = {
    client_name: "reference",
    application_type: "native",
    redirect_uris: [REDIRECT],
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
  };
  #clients = new Map();
  #tokens = new Map();

  constructor() {
    if (scenario === "auth/basic-cimd")
      this.clientMetadataUrl = "https://conformance-test.local/client-metadata.json";
  }

  clientInformation(about) {
    const { client_id, client_secret, issuer } = context;
    return client_id ? { client_id, client_secret, issuer } : this.#clients.get(about?.issuer);
  }
  saveClientInformation(client, about) {
    this.#clients.set(about?.issuer, client);
  }
  tokens(about) {
    return about ? this.#tokens.get(about.issuer) : this.last;
  }
  saveTokens(tokens, about) {
    this.last = tokens;
    this.#tokens.set(about?.issuer, tokens);
  }
  redirectToAuthorization(url) {
    this.url = url;
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
}

const provider = new Provider();
const transportTo = () =>
  new StreamableHTTPClientTransport(new URL(process.argv.at(-1)), { authProvider: provider });
const mode = version === "2026-07-28" ? { pin: version } : "legacy";
const connected = () =>
  new Client(
    { name: "reference", version: "0" },
    { capabilities: {}, versionNegotiation: { mode } },
  );

let signIns = 0;
let transport = transportTo();

/** `step`, after as many sign-ins as it takes. */
async function signedIn(step) {
  for (;;)
    try {
      return await step();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || ++signIns > MAX_SIGN_INS) throw error;
      const stop = (url) => url.startsWith(REDIRECT);
      const { url } = await new FormBrowser().open(provider.url, { stop });
      await transport.finishAuth(new URL(url).searchParams);
    }
}

const client = await signedIn(async () => {
  const made = connected();
  transport = transportTo();
  await made.connect(transport);
  return made;
});
const { tools } = await signedIn(() => client.listTools());
for (const { name } of tools) await signedIn(() => client.callTool({ name, arguments: {} }));
await client.close();
