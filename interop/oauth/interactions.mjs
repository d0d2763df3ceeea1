// The authorization server's two pages: who are you (any name will do), and do you allow it.
// The ids of their elements are what browser.mjs clicks: #account, #sign-in, #allow, #deny.
import { text } from "node:stream/consumers";

const escaped = (value) =>
  String(value).replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

const page = (title, body) => `<!doctype html>
<html lang="en"><meta charset="utf-8"><title>${title}</title><h1>${title}</h1>${body}</html>`;

const login = () =>
  page(
    "Sign in",
    `<form method="post">
<label>Account <input id="account" name="account" required autofocus></label>
<button id="sign-in" name="action" value="sign-in">Sign in</button>
</form>`,
  );

const consent = ({ params, session }, client) =>
  page(
    "Allow access?",
    `<dl>
<dt>Account<dd id="who">${escaped(session.accountId)}
<dt>Client<dd id="client">${escaped(client.clientName ?? client.clientId)}
<dt>Resource<dd id="resource">${escaped(params.resource ?? "none")}
<dt>Scopes<dd id="scopes">${escaped(params.scope ?? "none")}
</dl>
<form method="post">
<button id="allow" name="action" value="allow">Allow</button>
<button id="deny" name="action" value="deny">Deny</button>
</form>`,
  );

/** A grant of all that is missing, added to what was allowed before. */
async function granted(provider, { prompt, params, session, grantId }) {
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(" "));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {}))
    grant.addResourceScope(resource, scopes.join(" "));
  return { consent: { grantId: await grant.save() } };
}

async function submitted(provider, details, form) {
  switch (form.get("action")) {
    case "sign-in":
      return { login: { accountId: form.get("account") } };
    case "allow":
      return granted(provider, details);
    default:
      return { error: "access_denied", error_description: "The user said no" };
  }
}

async function answer(provider, request, response) {
  const details = await provider.interactionDetails(request, response);
  if (request.method === "POST") {
    const form = new URLSearchParams(await text(request));
    const result = await submitted(provider, details, form);
    return provider.interactionFinished(request, response, result, {
      mergeWithLastSubmission: !result.login,
    });
  }
  const client = await provider.Client.find(details.params.client_id);
  response.setHeader("content-type", "text/html; charset=utf-8");
  response.end(details.prompt.name === "login" ? login() : consent(details, client));
}

/** A request listener for /interaction/UID. */
export function interactions(provider) {
  return (request, response) =>
    answer(provider, request, response).catch((error) => {
      // An interaction that is over, or another browser's: not this server's fault.
      response.statusCode = error.statusCode ?? 500;
      response.end(page("Cannot go on", `<p id="error">${escaped(error.message)}</p>`));
    });
}
