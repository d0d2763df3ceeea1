//! A client's response to a sign-in prompt, by whichever route it came, and its effect on the flow.

use serde::Deserialize;
use thiserror::Error;

use crate::oauth::{
    Account, AwaitedInput, ClientTokens, Delivery, DeliveryError, DeliveryRoute, FlowId,
    FlowOutcome, Secret, Useless,
};
use crate::session::Session;

/// A client's response to `elicitation/create`.
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

/// The fields of all of Bowline's prompts.
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

/// What a response did to its flow.
#[derive(Debug)]
pub(crate) enum Effect {
    Ended(FlowOutcome),
    /// The flow continues: its input arrives by another route, or the next prompt asks for it.
    GoesOn,
}

/// Why a response did nothing to its flow.
#[derive(Debug, Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Useless(#[from] Useless),
    #[error(transparent)]
    Refused(#[from] DeliveryError),
}

impl Elicited {
    /// Handles the response to the prompt of the flow with this id.
    pub(crate) async fn take(
        self,
        session: &Session,
        account: &Account,
        id: &FlowId,
    ) -> Result<Effect, AnswerError> {
        let flows = &account.flows;
        // Noted first: a request that waits for the flow may wake before this is done, and must not withdraw
        // a prompt that was answered.
        flows.prompts.note_answer(session.hash, id);
        let effect = self.apply(account, id).await;
        match &effect {
            Err(AnswerError::Useless(why)) => flows.prompts.fail(session.hash, id, None, *why),
            Err(AnswerError::Refused(
                DeliveryError::UnknownFlow | DeliveryError::IssuerMismatch,
            )) => flows.prompts.repeat(session.hash, id),
            _ => {}
        }
        effect
    }

    async fn apply(self, account: &Account, id: &FlowId) -> Result<Effect, AnswerError> {
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
                    let why = "the client returned a code, but this server's flow is client-driven: the client must exchange the code itself, or `redirect_uri` must be configured";
                    flows.fail(&flow, why).await?
                }
                None => {
                    let why = "the client accepted but returned no access token";
                    flows.fail(&flow, why).await?
                }
            },
            // The user opened the link; the authorization response comes to Bowline's own callback.
            AwaitedInput::Authorization(_) if flow.returns_to_bowline() => {
                match content.into_tokens() {
                    Some(tokens) if flows.settings().host.may_sign_in() => {
                        flows.take_tokens(&flow, tokens).await?
                    }
                    _ => return Ok(Effect::GoesOn),
                }
            }
            AwaitedInput::Authorization(_) => match (content.into_tokens(), code, state) {
                (Some(tokens), _, _) => flows.take_tokens(&flow, tokens).await?,
                (None, Some(code), Some(state)) => {
                    // The state in the response decides, and it must be this flow's.
                    if FlowId::of(state.expose()) != *id {
                        return Err(Useless::WrongState.into());
                    }
                    let code = Delivery::Code { code, iss: None };
                    let delivered = flows.deliver(state.expose(), code, DeliveryRoute::Forwarded);
                    delivered.await?
                }
                (None, Some(_), None) => return Err(Useless::WrongState.into()),
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
