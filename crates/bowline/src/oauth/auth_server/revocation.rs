//! Revoking tokens (RFC 7009), which rmcp does not do.

use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Request, Uri};
use url::form_urlencoded;

use super::client::{basic, shown_secret};
use super::transport::refusal;
use super::{AuthServer, FORM};
use crate::oauth::auth_server_error::AuthServerError;
use crate::oauth::grant::{Authentication, ClientIdentity, Discovery, Grant};
use crate::oauth::secret::Secret;
use bowline_egress::Redirects;

/// Which token is revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Access,
    Refresh,
}

impl AuthServer {
    /// Revokes a grant's tokens; `false` if the authorization server offers no revocation. The refresh token
    /// comes first: without it there are no new access tokens.
    pub(crate) async fn revoke_grant(&self, grant: &Grant) -> Result<bool, AuthServerError> {
        let refresh = grant.refresh_token.as_ref();
        let tokens = refresh.map(|token| (token, TokenKind::Refresh));
        let tokens = tokens
            .into_iter()
            .chain([(&grant.access_token, TokenKind::Access)]);
        let mut revoked = Ok(true);
        for (token, kind) in tokens {
            let one = self.revoke(&grant.discovery, &grant.client, token, kind);
            revoked = match (revoked, one.await) {
                (Ok(before), Ok(one)) => Ok(before && one),
                // Some servers revoke refresh tokens only, and their access tokens with them.
                (Ok(before), Err(AuthServerError::Denied("unsupported_token_type"))) => Ok(before),
                (Ok(_), failed) => failed,
                (failed, _) => failed,
            };
        }
        revoked
    }

    /// Revokes a token; `false` if the authorization server offers no revocation.
    pub(super) async fn revoke(
        &self,
        discovery: &Discovery,
        client: &ClientIdentity,
        token: &Secret,
        kind: TokenKind,
    ) -> Result<bool, AuthServerError> {
        let Some(endpoint) = discovery.metadata.get("revocation_endpoint") else {
            return Ok(false);
        };
        self.trust.check_endpoints(discovery)?;
        let endpoint = endpoint.as_str().and_then(|url| url.parse().ok());
        let endpoint: Uri = endpoint.ok_or(AuthServerError::Malformed("revocation_endpoint"))?;
        // In a block: the serializer must not be held across the await.
        let request = {
            let mut form = form_urlencoded::Serializer::new(String::new());
            form.append_pair("token", token.expose());
            form.append_pair("token_type_hint", kind.name());
            let mut request = Request::post(endpoint).header(CONTENT_TYPE, FORM);
            match shown_secret(discovery, client) {
                Some((secret, Authentication::ClientSecretPost)) => {
                    form.append_pair("client_id", &client.id);
                    form.append_pair("client_secret", secret.expose());
                }
                Some((secret, _)) => {
                    request = request.header(AUTHORIZATION, basic(&client.id, secret))
                }
                None => drop(form.append_pair("client_id", &client.id)),
            }
            request
                .body(form.finish().into_bytes())
                .map_err(|_| AuthServerError::Malformed("revocation_endpoint"))?
        };
        let answer = self.fetch.send(request, Redirects::Stop).await?;
        match answer.status().is_success() {
            true => Ok(true),
            false => Err(refusal(&answer)),
        }
    }
}

// === impl TokenKind ===

impl TokenKind {
    fn name(self) -> &'static str {
        match self {
            Self::Access => "access_token",
            Self::Refresh => "refresh_token",
        }
    }
}
