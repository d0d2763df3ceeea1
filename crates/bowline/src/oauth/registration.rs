//! Which client Bowline is at an authorization server: configured, registered, or named by the caller.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::account::AccountKey;
use super::auth_server::{AuthServer, AuthServerError};
use super::flow::{Authorization, AwaitedInput, Flow};
use super::flows::{Flows, SignInError};
use super::grant::{ClientIdentity, Discovery};
use super::secret::Secret;
use super::vault::{Registrar, VaultError};
use crate::config::{self, ServerOAuth};

/// How often a registration is given up because the authorization server refused the client.
const AFTER_REFUSAL: Duration = Duration::from_secs(60);
/// How often one is given up because nobody came back from a sign-in, which any caller can bring about: an
/// authorization server that registers only so many clients would lock the others out.
const ON_SUSPICION: Duration = Duration::from_secs(10 * 60);

/// Why a registration is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doubt {
    /// The authorization server said `invalid_client` or `unauthorized_client`.
    Refused,
    /// It may have shown a person a page that says so.
    Suspected,
}

/// When a registration for each server was last given up, by the server's URL.
#[derive(Debug, Default)]
pub(super) struct GivenUp(Mutex<HashMap<Box<str>, Instant>>);

impl GivenUp {
    /// Whether another registration for this server may be given up now; if so, this is counted.
    fn may(&self, server_url: &str, doubt: Doubt) -> bool {
        let pause = match doubt {
            Doubt::Refused => AFTER_REFUSAL,
            Doubt::Suspected => ON_SUSPICION,
        };
        let mut last = self.0.lock();
        last.retain(|_, at| at.elapsed() < ON_SUSPICION);
        let is_free = last.get(server_url).is_none_or(|at| at.elapsed() >= pause);
        if is_free {
            last.insert(server_url.into(), Instant::now());
        }
        is_free
    }
}

impl Flows {
    /// The first input that a new flow waits for.
    pub(super) async fn first_input(
        &self,
        key: &AccountKey,
        oauth: &ServerOAuth,
        auth_server: &AuthServer,
        discovery: &Discovery,
        scopes: Vec<String>,
    ) -> Result<AwaitedInput, SignInError> {
        if oauth.flow == config::Flow::ClientDriven {
            return Ok(AwaitedInput::Tokens { scopes });
        }
        let redirect_uri = self.redirect_uri(oauth);
        let identity = self.identity(key, oauth, auth_server, discovery, &redirect_uri, &scopes);
        let client = match identity.await {
            Err(SignInError::AuthServer(AuthServerError::NoRegistration)) => {
                return Ok(AwaitedInput::Client {
                    redirect_uri,
                    scopes,
                });
            }
            client => client?,
        };
        let request = auth_server.begin(discovery, &client, &scopes).await?;
        Ok(AwaitedInput::Authorization(Box::new(Authorization {
            client,
            is_client_named: false,
            request,
            browser: None,
        })))
    }

    /// Nobody finished the last sign-in. Maybe the authorization server showed a page that says that it does
    /// not know the client, which only a person sees. So Bowline forgets its registration and registers
    /// again, now and then.
    pub(super) async fn forget_unfinished_registration(
        &self,
        server_url: &str,
        oauth: &ServerOAuth,
        discovery: &Discovery,
    ) -> Result<(), VaultError> {
        let redirect_uri = self.redirect_uri(oauth);
        let registrar = Registrar {
            server_url,
            issuer: &discovery.issuer,
        };
        match self.vault.registration(registrar, &redirect_uri).await? {
            Some(known) if self.given_up.may(server_url, Doubt::Suspected) => {
                self.vault.forget_client("", registrar, &known).await
            }
            _ => Ok(()),
        }
    }

    /// The client of this flow is, or may be, unknown to the authorization server: the next sign-in must not
    /// use it, unless another one was given up a moment ago.
    pub(super) async fn forget_client(&self, flow: &Flow, client: &ClientIdentity, doubt: Doubt) {
        let registrar = flow.registrar();
        let metadata = &flow.discovery.metadata;
        if metadata.contains_key("registration_endpoint")
            && !self.given_up.may(&flow.server_url, doubt)
        {
            return;
        }
        let forgetting = self.vault.forget_client(&flow.caller, registrar, client);
        if let Err(error) = forgetting.await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "rejected client registration not removed");
        }
    }

    fn redirect_uri(&self, oauth: &ServerOAuth) -> String {
        match &oauth.redirect_uri {
            Some(configured) => configured.as_str().to_owned(),
            None => self.callback_url(),
        }
    }

    /// The client for a sign-in, by the first of these that applies: configured, a client metadata document,
    /// registered before, named by the caller, registered now.
    async fn identity(
        &self,
        key: &AccountKey,
        oauth: &ServerOAuth,
        auth_server: &AuthServer,
        discovery: &Discovery,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientIdentity, SignInError> {
        if let Some(client) = &oauth.client {
            let secret = client.secret.as_ref();
            let secret = secret.map(|it| Secret::new(it.expose()));
            return Ok(ClientIdentity::new(&client.id, secret, redirect_uri));
        }
        let takes_documents = discovery
            .metadata
            .get("client_id_metadata_document_supported");
        if let Some(url) = &oauth.client_metadata_url
            && takes_documents.and_then(serde_json::Value::as_bool) == Some(true)
        {
            return Ok(ClientIdentity::new(&url.to_string(), None, redirect_uri));
        }
        let registrar = Registrar {
            server_url: &key.server_url,
            issuer: &discovery.issuer,
        };
        let known = self.vault.registration(registrar, redirect_uri).await?;
        if let Some(known) = known {
            return Ok(known);
        }
        if !discovery.metadata.contains_key("registration_endpoint") {
            let vault = &self.vault;
            let known = vault.named_client(&key.caller, &discovery.issuer, redirect_uri);
            let known = known.await?;
            return known.ok_or_else(|| AuthServerError::NoRegistration.into());
        }
        let registered = auth_server
            .register(discovery, redirect_uri, scopes)
            .await?;
        self.vault.put_registration(registrar, &registered).await?;
        Ok(registered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_registration_is_given_up_now_and_then() {
        let given_up = GivenUp::default();
        assert!(given_up.may("s", Doubt::Suspected));
        for doubt in [Doubt::Suspected, Doubt::Refused] {
            assert!(!given_up.may("s", doubt), "{doubt:?}");
        }
        assert!(given_up.may("other", Doubt::Suspected));
        tokio::time::advance(AFTER_REFUSAL).await;
        assert!(!given_up.may("s", Doubt::Suspected));
        assert!(given_up.may("s", Doubt::Refused));
        tokio::time::advance(ON_SUSPICION).await;
        assert!(given_up.may("s", Doubt::Suspected));
    }
}
