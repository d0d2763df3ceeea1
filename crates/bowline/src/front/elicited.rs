//! A client's answer to a question of ours, by whichever way it came: what it says, and what that does
//! to the flow that asked.

use serde::Deserialize;

use crate::oauth::{Account, Asks, Delivery, End, FlowId, HandedTokens, NotDelivered, Secret, Via};
use crate::session::Session;

/// What a client answered to `elicitation/create`.
#[derive(Debug, Deserialize)]
pub(super) struct Elicited {
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
pub(super) enum Effect {
    Ended(End),
    /// It goes on: what it waits for comes by another way, or is asked for next.
    GoesOn,
}

impl Elicited {
    /// Takes the answer to the question of the flow with this id.
    pub(super) async fn take(
        self,
        session: &Session,
        account: &Account,
        id: &FlowId,
    ) -> Result<Effect, NotDelivered> {
        let sign_ins = &account.sign_ins;
        // Noted first: whoever waits for the flow may wake before this is through, and must not take
        // back a question that was answered.
        sign_ins.answered(session.hash, id, true);
        let taken = self.taken(account, id).await;
        if matches!(taken, Err(NotDelivered::Unknown | NotDelivered::Issuer)) {
            sign_ins.answered(session.hash, id, false);
        }
        taken
    }

    async fn taken(self, account: &Account, id: &FlowId) -> Result<Effect, NotDelivered> {
        let sign_ins = &account.sign_ins;
        let flow = sign_ins.flow_of(account, id).await?;
        if self.action != Action::Accept {
            return Ok(Effect::Ended(sign_ins.decline(id).await?));
        }
        let mut content = self.content.unwrap_or_default();
        let (code, state) = (content.code.take(), content.state.take());
        let end = match &flow.asks {
            Asks::Client { .. } => {
                let client = content.client_id.unwrap_or_default();
                let taken = sign_ins.take_client(&flow, &client, content.client_secret);
                return Ok(taken.await?.map_or(Effect::GoesOn, Effect::Ended));
            }
            Asks::Tokens { .. } => match content.into_tokens() {
                Some(tokens) => sign_ins.take_tokens(&flow, tokens).await?,
                None if code.is_some() => {
                    let why = "the client handed over a code, and this server's flow is client-driven: it has to exchange the code itself, or `redirect_uri` be configured";
                    sign_ins.fail(&flow, why).await?
                }
                None => {
                    let why = "the client accepted and handed over no access token";
                    sign_ins.fail(&flow, why).await?
                }
            },
            // The link was opened; its answer comes to our own page.
            Asks::Authorization(_) if flow.is_managed() => return Ok(Effect::GoesOn),
            Asks::Authorization(_) => match (content.into_tokens(), code, state) {
                (Some(tokens), _, _) => sign_ins.take_tokens(&flow, tokens).await?,
                (None, Some(code), Some(state)) => {
                    // The state that came is what counts, and it has to be this flow's.
                    if FlowId::of(state.expose()) != *id {
                        return Err(NotDelivered::Unknown);
                    }
                    let code = Delivery::Code { code, iss: None };
                    let delivered = sign_ins.deliver(state.expose(), code, Via::Courier);
                    delivered.await?
                }
                (None, Some(_), None) => return Err(NotDelivered::Unknown),
                (None, None, _) => return Ok(Effect::GoesOn),
            },
        };
        Ok(Effect::Ended(end))
    }
}

// === impl Content ===

impl Content {
    fn into_tokens(self) -> Option<HandedTokens> {
        Some(HandedTokens {
            access_token: self.access_token?,
            token_type: self.token_type,
            expires_in: self.expires_in,
            refresh_token: self.refresh_token,
            client_id: self.client_id,
            scope: self.scope,
        })
    }
}
