//! What a client hands over itself, in answer to a question of a flow: tokens, or who Bowline is.

use std::time::Duration;

use super::account::Account;
use super::challenge::split_scopes;
use super::delivery::{NotDelivered, ended_as};
use super::flow::{Asks, Authorization, End, Flow, FlowId};
use super::grant::{ClientIdentity, Tokens};
use super::secret::Secret;
use super::sign_ins::{SignInError, SignIns};
use crate::clock;
use crate::config::Client;

/// The longest that a handed token is believed to live, which is longer than any does.
const MAX_LIFE: f64 = 1e9;

/// Tokens that a client got by itself.
#[derive(Debug)]
pub(crate) struct HandedTokens {
    pub(crate) access_token: Secret,
    pub(crate) token_type: Option<String>,
    pub(crate) expires_in: Option<f64>,
    pub(crate) refresh_token: Option<Secret>,
    /// The client that they were issued to.
    pub(crate) client_id: Option<String>,
    pub(crate) scope: Option<String>,
}

impl SignIns {
    /// The flow with this id, if it is this account's and is not over.
    pub(crate) async fn flow_of(
        &self,
        account: &Account,
        id: &FlowId,
    ) -> Result<Flow, NotDelivered> {
        let flow = self.pending.flow(id).await?;
        let is_open =
            |flow: &Flow| flow.is_of(&account.key()) && flow.is_open(clock::unix_seconds());
        flow.filter(is_open).ok_or(NotDelivered::Unknown)
    }

    /// Takes tokens that the client got by itself; how the flow ended thereby.
    pub(crate) async fn take_tokens(
        &self,
        flow: &Flow,
        handed: HandedTokens,
    ) -> Result<End, NotDelivered> {
        let flow = self.take(&flow.id).await?;
        let is_bearer = |kind: &String| kind.eq_ignore_ascii_case("bearer");
        let end = if handed.access_token.expose().is_empty() {
            End::Failed("the client handed over an empty access token".to_owned())
        } else if !handed.token_type.as_ref().is_none_or(is_bearer) {
            End::Failed("the client handed over a token that is no bearer token".to_owned())
        } else {
            let configured = self.authorities.configured_client(&flow.server_url);
            let (client, tokens) = handed.into_parts(self.callback_url(), configured);
            ended_as(&flow, self.keep(&flow, client, tokens).await)
        };
        self.end(&flow, end.clone()).await;
        Ok(end)
    }

    /// Takes who Bowline is at the authorization server, and goes on as another flow with the same
    /// deadline. `None`: it goes on.
    pub(crate) async fn take_client(
        &self,
        flow: &Flow,
        id: &str,
        secret: Option<Secret>,
    ) -> Result<Option<End>, NotDelivered> {
        let flow = self.take(&flow.id).await?;
        let Asks::Client {
            redirect_uri,
            scopes,
        } = &flow.asks
        else {
            return Err(NotDelivered::Unknown);
        };
        let client = ClientIdentity {
            id: id.trim().to_owned(),
            secret: secret.filter(|secret| !secret.expose().is_empty()),
            authentication: None,
            redirect_uri: redirect_uri.clone(),
        };
        let next = match client.id.is_empty() {
            true => Err(End::Failed("no client id was given".to_owned())),
            false => {
                let next = self.with_client(&flow, client, scopes).await;
                next.map_err(|error| ended_as(&flow, Err(error)))
            }
        };
        match next {
            Ok(next) => {
                self.replace(&flow, &next).await?;
                Ok(None)
            }
            Err(end) => {
                self.end(&flow, end.clone()).await;
                Ok(Some(end))
            }
        }
    }

    async fn with_client(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        scopes: &[String],
    ) -> Result<Flow, SignInError> {
        let authority = self.authorities.of(&flow.server_url)?;
        let begun = authority.begin(&flow.found, &client, scopes).await?;
        let way = Authorization {
            client,
            is_client_named: true,
            begun,
            browser: None,
        };
        Ok(Flow {
            id: FlowId::of(way.begun.state.expose()),
            asks: Asks::Authorization(Box::new(way)),
            taken: None,
            ..flow.clone()
        })
    }

    /// Ends a flow whose client answered with something else than it was asked for.
    pub(crate) async fn fail(&self, flow: &Flow, why: &str) -> Result<End, NotDelivered> {
        let flow = self.take(&flow.id).await?;
        let end = End::Failed(why.to_owned());
        self.end(&flow, end.clone()).await;
        Ok(end)
    }
}

// === impl HandedTokens ===

impl HandedTokens {
    /// The tokens, and whose they are. Where the client does not say which client they were issued
    /// to, it is the configured one; where there is none, nobody could use the refresh token: they
    /// expire.
    fn into_parts(
        self,
        redirect_uri: String,
        configured: Option<Client>,
    ) -> (ClientIdentity, Tokens) {
        let client_id = self.client_id.filter(|id| !id.is_empty());
        let client_id = client_id.or_else(|| configured.map(|client| client.id));
        let refresh_token = client_id.as_ref().and(self.refresh_token);
        let life = self.expires_in.filter(|life| *life > 0.0);
        let tokens = Tokens {
            access_token: self.access_token,
            refresh_token: refresh_token.filter(|it| !it.expose().is_empty()),
            expires_in: life.map(|life| Duration::from_secs_f64(life.min(MAX_LIFE))),
            scopes: split_scopes(&self.scope.unwrap_or_default()),
        };
        let client = ClientIdentity {
            id: client_id.unwrap_or_default(),
            // Whoever refreshes knows a configured client's.
            secret: None,
            authentication: None,
            // A refresh does not send it.
            redirect_uri,
        };
        (client, tokens)
    }
}
