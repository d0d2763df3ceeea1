//! What a client provides itself in answer to a prompt: tokens, or a client id.

use std::time::Duration;

use bowline_system::clock;

use super::account::Account;
use super::auth_server::MAX_REGISTERED;
use super::auth_server_error::AuthServerError;
use super::challenge::split_scopes;
use super::delivery::{DeliveryError, outcome_of};
use super::flow::{Authorization, AwaitedInput, Flow, FlowId, FlowOutcome};
use super::flows::Flows;
use super::grant::{ClientIdentity, MAX_LIFE, Tokens};
use super::secret::Secret;
use super::sign_in_error::SignInError;
use crate::config::Client;

/// Tokens that a client got by itself.
#[derive(Debug)]
pub(crate) struct ClientTokens {
    pub(crate) access_token: Secret,
    pub(crate) token_type: Option<String>,
    pub(crate) expires_in: Option<f64>,
    pub(crate) refresh_token: Option<Secret>,
    /// The client that the tokens were issued to.
    pub(crate) client_id: Option<String>,
    pub(crate) scope: Option<String>,
}

impl Flows {
    /// The flow with this id, if it belongs to this account and is open.
    pub(crate) async fn flow_of(
        &self,
        account: &Account,
        id: &FlowId,
    ) -> Result<Flow, DeliveryError> {
        let flow = self.flow_store.flow(id).await?;
        let is_open =
            |flow: &Flow| flow.is_of(account.key()) && flow.is_open(clock::unix_seconds());
        flow.filter(is_open).ok_or(DeliveryError::UnknownFlow)
    }

    /// Takes tokens that the client got by itself. Returns how the flow ended.
    pub(crate) async fn take_tokens(
        &self,
        flow: &Flow,
        handed: ClientTokens,
    ) -> Result<FlowOutcome, DeliveryError> {
        let flow = self.take(&flow.id).await?;
        let is_bearer = |kind: &String| kind.eq_ignore_ascii_case("bearer");
        let client_id = handed.client_id.as_deref().unwrap_or_default();
        let outcome = if handed.access_token.expose().is_empty() {
            FlowOutcome::Failed("the client sent an empty access token".to_owned())
        } else if !handed.token_type.as_ref().is_none_or(is_bearer) {
            FlowOutcome::Failed("the client sent a token that is not a bearer token".to_owned())
        } else if client_id.len() > MAX_REGISTERED {
            FlowOutcome::Failed(format!(
                "the client id has more than {MAX_REGISTERED} bytes"
            ))
        } else {
            let configured = self.auth_servers.configured_client(&flow.server_url);
            let (client, tokens) = handed.into_parts(&self.callback_url(), configured);
            let kept = match tokens.check() {
                Ok(tokens) => self.keep(&flow, client, tokens).await,
                Err(error) => Err(AuthServerError::from(error).into()),
            };
            outcome_of(&flow, kept)
        };
        self.end(&flow, outcome.clone()).await;
        Ok(outcome)
    }

    /// Takes the client id for the authorization server, and continues as another flow with the same
    /// deadline. `None`: the sign-in continues.
    pub(crate) async fn take_client(
        &self,
        flow: &Flow,
        id: &str,
        secret: Option<Secret>,
    ) -> Result<Option<FlowOutcome>, DeliveryError> {
        let flow = self.take(&flow.id).await?;
        let AwaitedInput::Client {
            redirect_uri,
            scopes,
        } = &flow.awaited
        else {
            return Err(DeliveryError::UnknownFlow);
        };
        let secret = secret.filter(|secret| !secret.expose().is_empty());
        let client = ClientIdentity::new(id.trim(), secret, redirect_uri);
        let secret = client.secret.as_ref().map_or("", Secret::expose);
        let is_too_long = client.id.len().max(secret.len()) > MAX_REGISTERED;
        let next = match client.id.is_empty() {
            true => Err(FlowOutcome::Failed("no client id was given".to_owned())),
            false if is_too_long => Err(FlowOutcome::Failed(format!(
                "the client id or its secret has more than {MAX_REGISTERED} bytes"
            ))),
            false => {
                let next = self.with_client(&flow, client, scopes).await;
                next.map_err(|error| outcome_of(&flow, Err(error)))
            }
        };
        match next {
            Ok(next) => {
                self.replace(&flow, &next).await?;
                Ok(None)
            }
            Err(outcome) => {
                self.end(&flow, outcome.clone()).await;
                Ok(Some(outcome))
            }
        }
    }

    async fn with_client(
        &self,
        flow: &Flow,
        client: ClientIdentity,
        scopes: &[String],
    ) -> Result<Flow, SignInError> {
        let auth_server = self.auth_servers.of(&flow.server_url)?;
        let request = auth_server.begin(&flow.discovery, &client, scopes).await?;
        let authorization = Authorization {
            client,
            is_client_named: true,
            request,
            browser: None,
        };
        Ok(Flow {
            id: FlowId::of(authorization.request.state.expose()),
            awaited: AwaitedInput::Authorization(Box::new(authorization)),
            taken: None,
            ..flow.clone()
        })
    }

    /// Ends a flow whose client sent an unusable answer.
    pub(crate) async fn fail(&self, flow: &Flow, why: &str) -> Result<FlowOutcome, DeliveryError> {
        let flow = self.take(&flow.id).await?;
        let outcome = FlowOutcome::Failed(why.to_owned());
        self.end(&flow, outcome.clone()).await;
        Ok(outcome)
    }
}

// === impl ClientTokens ===

impl ClientTokens {
    /// The tokens, and the client they were issued to. If the answer does not name it, it is the configured
    /// one. Without any, the refresh token cannot be used and is dropped.
    fn into_parts(
        self,
        redirect_uri: &str,
        configured: Option<Client>,
    ) -> (ClientIdentity, Tokens) {
        let client_id = self.client_id.filter(|id| !id.is_empty());
        let client_id = client_id.or_else(|| configured.map(|client| client.id));
        let refresh_token = client_id.as_ref().and(self.refresh_token);
        let life = self.expires_in.filter(|life| *life > 0.0);
        let tokens = Tokens {
            access_token: self.access_token,
            refresh_token: refresh_token.filter(|it| !it.expose().is_empty()),
            expires_in: life.map(|life| Duration::from_secs_f64(life.min(MAX_LIFE.as_secs_f64()))),
            scopes: split_scopes(&self.scope.unwrap_or_default()),
        };
        // No secret: a configured client has it in the configuration. The redirect URI is not sent in a refresh.
        let client = ClientIdentity::new(&client_id.unwrap_or_default(), None, redirect_uri);
        (client, tokens)
    }
}
