//! A client's answer to a question of ours, by whichever way it came: what it says, and what that does
//! to the flow that asked.

use serde::Deserialize;

use crate::oauth::{
    Account, AwaitedInput, ClientTokens, Delivery, DeliveryError, DeliveryRoute, FlowId,
    FlowOutcome, Secret,
};
use crate::session::Session;

/// What a client answered to `elicitation/create`.
#[derive(Debug, Deserialize)]
pub(crate) struct Elicited {
    action: Action,
    #[serde(default)]
    content: Option<Content>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Accept,
    Decline,
    Cancel,
}

/// Whatever any of our questions asks for.
#[derive(Debug, Default, Deserialize)]
struct Content {
    code: Option<Secret>,
    state: Option<Secret>,
    access_token: Option<Secret>,
    token_type: Option<String>,
    expires_in: Option<f64>,
    refresh_token: Option<Secret>,
    client_id: Option<String>,
    client_secret: Option<Secret>,
    scope: Option<String>,
}

/// What an answer did to the flow that asked.
#[derive(Debug)]
pub(crate) enum Effect {
    Ended(FlowOutcome),
    /// It goes on: what it waits for comes by another way, or is asked for next.
    GoesOn,
}

impl Elicited {
    /// Takes the answer to the question of the flow with this id.
    pub(crate) async fn take(
        self,
        session: &Session,
        account: &Account,
        id: &FlowId,
    ) -> Result<Effect, DeliveryError> {
        let flows = &account.flows;
        // Noted first: whoever waits for the flow may wake before this is through, and must not take
        // back a question that was answered.
        flows.prompt_answered(session.hash, id, true);
        let taken = self.taken(account, id).await;
        if matches!(
            taken,
            Err(DeliveryError::UnknownFlow | DeliveryError::IssuerMismatch)
        ) {
            flows.prompt_answered(session.hash, id, false);
        }
        taken
    }

    async fn taken(self, account: &Account, id: &FlowId) -> Result<Effect, DeliveryError> {
        let flows = &account.flows;
        let flow = flows.flow_of(account, id).await?;
        if self.action != Action::Accept {
            return Ok(Effect::Ended(flows.decline(id).await?));
        }
        let mut content = self.content.unwrap_or_default();
        let (code, state) = (content.code.take(), content.state.take());
        let end = match &flow.awaited {
            AwaitedInput::Client { .. } => {
                let client = content.client_id.unwrap_or_default();
                let taken = flows.take_client(&flow, &client, content.client_secret);
                return Ok(taken.await?.map_or(Effect::GoesOn, Effect::Ended));
            }
            AwaitedInput::Tokens { .. } => match content.into_tokens() {
                Some(tokens) => flows.take_tokens(&flow, tokens).await?,
                None if code.is_some() => {
                    let why = "the client handed over a code, and this server's flow is client-driven: it has to exchange the code itself, or `redirect_uri` be configured";
                    flows.fail(&flow, why).await?
                }
                None => {
                    let why = "the client accepted and handed over no access token";
                    flows.fail(&flow, why).await?
                }
            },
            // The link was opened; its answer comes to our own page.
            AwaitedInput::Authorization(_) if flow.is_managed() => return Ok(Effect::GoesOn),
            AwaitedInput::Authorization(_) => match (content.into_tokens(), code, state) {
                (Some(tokens), _, _) => flows.take_tokens(&flow, tokens).await?,
                (None, Some(code), Some(state)) => {
                    // The state that came is what counts, and it has to be this flow's.
                    if FlowId::of(state.expose()) != *id {
                        return Err(DeliveryError::UnknownFlow);
                    }
                    let code = Delivery::Code { code, iss: None };
                    let delivered = flows.deliver(state.expose(), code, DeliveryRoute::Forwarded);
                    delivered.await?
                }
                (None, Some(_), None) => return Err(DeliveryError::UnknownFlow),
                (None, None, _) => return Ok(Effect::GoesOn),
            },
        };
        Ok(Effect::Ended(end))
    }
}

// === impl Content ===

impl Content {
    fn into_tokens(self) -> Option<ClientTokens> {
        Some(ClientTokens {
            access_token: self.access_token?,
            token_type: self.token_type,
            expires_in: self.expires_in,
            refresh_token: self.refresh_token,
            client_id: self.client_id,
            scope: self.scope,
        })
    }
}
