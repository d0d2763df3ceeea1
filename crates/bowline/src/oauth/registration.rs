//! Which client Bowline is at an authorization server: configured, registered, or named by the caller.

use super::account_key::AccountKey;
use super::auth_server::AuthServer;
use super::auth_server_error::AuthServerError;
use super::flow::{Authorization, AwaitedInput, Flow, FlowKind};
use super::flows::Flows;
use super::given_up::Doubt;
use super::grant::{ClientIdentity, Discovery};
use super::secret::Secret;
use super::sign_in_error::SignInError;
use super::vault::{Registrar, VaultError};
use crate::config::ServerOAuth;

impl Flows {
    /// The first input that a new flow waits for.
    pub(super) async fn first_input(
        &self,
        key: &AccountKey,
        oauth: &ServerOAuth,
        kind: &FlowKind,
        auth_server: &AuthServer,
        discovery: &Discovery,
        scopes: Vec<String>,
    ) -> Result<AwaitedInput, SignInError> {
        if *kind == FlowKind::ClientDriven {
            return Ok(AwaitedInput::Tokens { scopes });
        }
        let redirect_uri = self.redirect_uri(kind);
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
        key: &AccountKey,
        kind: &FlowKind,
        discovery: &Discovery,
    ) -> Result<(), VaultError> {
        let redirect_uri = self.redirect_uri(kind);
        let registrar = Registrar {
            server_url: &key.server_url,
            issuer: &discovery.issuer,
        };
        match self.vault.registration(registrar, &redirect_uri).await? {
            Some(known) if self.given_up.may(key, Doubt::Suspected) => {
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
        let account = AccountKey {
            caller: flow.caller.as_str().into(),
            server_url: flow.server_url.as_str().into(),
        };
        if metadata.contains_key("registration_endpoint") && !self.given_up.may(&account, doubt) {
            return;
        }
        let forgetting = self.vault.forget_client(&flow.caller, registrar, client);
        if let Err(error) = forgetting.await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "rejected client registration not removed");
        }
    }

    fn redirect_uri(&self, kind: &FlowKind) -> String {
        match kind {
            FlowKind::Drive { redirect_uri } => redirect_uri.clone(),
            FlowKind::Loopback(address) => address.redirect_uri.clone(),
            FlowKind::Managed { .. } | FlowKind::ClientDriven => self.callback_url(),
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
