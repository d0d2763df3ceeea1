// The least an OAuth client needs, to check the parts against each other without Bowline.
import { createHash, randomBytes } from "node:crypto";

const random = () => randomBytes(32).toString("base64url");

export async function json(url, options) {
  const response = await fetch(url, options);
  return { status: response.status, headers: response.headers, body: await response.json() };
}

export class OAuthClient {
  constructor(metadata, registered, redirectUri) {
    Object.assign(this, { metadata, id: registered.client_id, redirectUri });
  }

  static async register(metadata, redirectUri) {
    const { status, body } = await json(metadata.registration_endpoint, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({
        client_name: "check",
        application_type: "native",
        redirect_uris: [redirectUri],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: "none",
      }),
    });
    if (status !== 201) throw new Error(`registration: ${status} ${JSON.stringify(body)}`);
    return new OAuthClient(metadata, body, redirectUri);
  }

  /** A sign-in: where to send the browser, and what `exchange` needs afterwards. */
  begin(resource, scope, more = {}) {
    const verifier = random();
    const state = random();
    const url = new URL(this.metadata.authorization_endpoint);
    url.search = new URLSearchParams({
      response_type: "code",
      client_id: this.id,
      redirect_uri: this.redirectUri,
      code_challenge: createHash("sha256").update(verifier).digest("base64url"),
      code_challenge_method: "S256",
      resource,
      scope,
      state,
      ...more,
    });
    return { url: url.href, state, verifier, resource };
  }

  exchange({ verifier, resource }, code) {
    const grant_type = "authorization_code";
    const redirect_uri = this.redirectUri;
    return this.#post("token", { grant_type, code, redirect_uri, resource, code_verifier: verifier });
  }

  refresh(refresh_token, resource) {
    return this.#post("token", { grant_type: "refresh_token", refresh_token, resource });
  }

  async revoke(token) {
    const body = new URLSearchParams({ client_id: this.id, token });
    return (await fetch(this.metadata.revocation_endpoint, { method: "POST", body })).status;
  }

  #post(endpoint, form) {
    const body = new URLSearchParams({ client_id: this.id, ...form });
    return json(this.metadata[`${endpoint}_endpoint`], { method: "POST", body });
  }
}
