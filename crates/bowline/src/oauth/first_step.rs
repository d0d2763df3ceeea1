//! What a new sign-in begins with: who Bowline is at the authorization server, and what it asks for.

use super::account::{Wanted, Whose};
use super::authority::{Authority, AuthorityError};
use super::flow::{Asks, Authorization, Flow};
use super::grant::{ClientIdentity, Discovered};
use super::secret::Secret;
use super::sign_ins::{SignInError, SignIns};
use super::vault::VaultError;
use crate::config::{self, ServerOAuth};

impl SignIns {
    /// What a flow of this caller waits for first.
    pub(super) async fn first_step(
        &self,
        whose: &Whose,
        oauth: &ServerOAuth,
        authority: &Authority,
        (found, scopes): (&Discovered, Vec<String>),
    ) -> Result<Asks, SignInError> {
        if oauth.flow == config::Flow::ClientDriven {
            return Ok(Asks::Tokens { scopes });
        }
        let redirect_uri = self.redirect_uri(oauth);
        let identity = self.identity(whose, oauth, authority, found, &redirect_uri, &scopes);
        let client = match identity.await {
            Err(SignInError::Authority(AuthorityError::NoRegistration)) => {
                return Ok(Asks::Client {
                    redirect_uri,
                    scopes,
                });
            }
            client => client?,
        };
        let begun = authority.begin(found, &client, &scopes).await?;
        Ok(Asks::Authorization(Box::new(Authorization {
            client,
            is_client_named: false,
            begun,
            browser: None,
        })))
    }

    /// Nobody came back from the last sign-in: maybe from a page that says that nobody knows the
    /// client, which only a person sees. Bowline registers anew.
    pub(super) async fn doubt_registration(
        &self,
        server_url: &str,
        oauth: &ServerOAuth,
        found: &Discovered,
    ) -> Result<(), VaultError> {
        let redirect_uri = self.redirect_uri(oauth);
        let place = (server_url, &*found.issuer);
        match self.vault.registration(place, &redirect_uri).await? {
            Some(known) => self.vault.forget_client("", place, &known).await,
            None => Ok(()),
        }
    }

    /// The client of this flow is, or may be, unknown to the authorization server: the next sign-in is
    /// not to use it.
    pub(super) async fn forget_client(&self, flow: &Flow, client: &ClientIdentity) {
        let place = (&*flow.server_url, &*flow.found.issuer);
        let forgetting = self.vault.forget_client(&flow.caller, place, client);
        if let Err(error) = forgetting.await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "a client that is not accepted is still kept");
        }
    }

    fn redirect_uri(&self, oauth: &ServerOAuth) -> String {
        match &oauth.redirect_uri {
            Some(configured) => configured.as_str().to_owned(),
            None => self.callback_url(),
        }
    }

    /// Who Bowline is at this authorization server: as configured, by its document, as the caller
    /// named it or it was registered before, or registered now.
    async fn identity(
        &self,
        (caller, server_url): &Whose,
        oauth: &ServerOAuth,
        authority: &Authority,
        found: &Discovered,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientIdentity, SignInError> {
        let named = |id: &str, secret: Option<Secret>| ClientIdentity {
            id: id.to_owned(),
            secret,
            authentication: None,
            redirect_uri: redirect_uri.to_owned(),
        };
        if let Some(client) = &oauth.client {
            let secret = client.secret.as_ref();
            return Ok(named(&client.id, secret.map(|it| Secret::new(it.expose()))));
        }
        let takes_documents = found.metadata.get("client_id_metadata_document_supported");
        if let Some(url) = &oauth.client_metadata_url
            && takes_documents.and_then(serde_json::Value::as_bool) == Some(true)
        {
            return Ok(named(&url.to_string(), None));
        }
        let place = (&**server_url, &*found.issuer);
        let known = self.vault.registration(place, redirect_uri).await?;
        if let Some(known) = known {
            return Ok(known);
        }
        if !found.metadata.contains_key("registration_endpoint") {
            let vault = &self.vault;
            let known = vault.named_client(caller, &found.issuer, redirect_uri);
            let known = known.await?;
            return known.ok_or_else(|| AuthorityError::NoRegistration.into());
        }
        let registered = authority.register(found, redirect_uri, scopes).await?;
        self.vault.put_registration(place, &registered).await?;
        Ok(registered)
    }
}

/// What is asked for: what the operator configured, else what the server wants and, where it wants
/// more than was granted, that too.
pub(super) fn scopes(
    oauth: &ServerOAuth,
    found: &Discovered,
    wanted: &Wanted,
    known: Vec<String>,
) -> Vec<String> {
    let mut scopes = match oauth.scopes.is_empty() {
        false => oauth.scopes.clone(),
        true => found.scopes.clone(),
    };
    if wanted.is_step_up {
        let more = wanted.challenge.iter().flat_map(|it| &it.scopes).cloned();
        scopes.extend(known.into_iter().chain(more));
    }
    let mut seen = std::collections::HashSet::new();
    scopes.retain(|scope| seen.insert(scope.clone()));
    scopes
}
