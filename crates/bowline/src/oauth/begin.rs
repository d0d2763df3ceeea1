//! Starting a sign-in: the flow that is under way for the account, or a new one.
//!
//! This sends requests to every host that a server names, so one deadline covers all of them, and a failure
//! is remembered for a moment instead of being repeated for the next request.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::account::Account;
use super::account_key::AccountKey;
use super::auth_server_error::AuthServerError;
use super::delivery::FAILURE_REMEMBERED;
use super::flow::{AwaitedInput, Flow, FlowKind, FlowOutcome, FlowState, Since};
use super::flow_store::FlowStoreError;
use super::flows::Flows;
use super::given_up::Doubt;
use super::reason::{RefusedGrant, SignInReason};
use super::sign_in_error::SignInError;
use super::step_ups::requested_scopes;
use super::trust::Trust;
use super::vault::VaultError;
use crate::config::{self, ServerOAuth};
use bowline_system::clock;

impl Flows {
    /// The flow in which a caller can sign in: the one that is under way, or a new one. It takes at most the
    /// time that a request is held. Dropping the future gives up.
    pub(crate) async fn begin(
        &self,
        account: &Account,
        server: &config::Server,
        reason: &SignInReason,
    ) -> Result<Flow, SignInError> {
        let Some(oauth) = &server.oauth else {
            return Err(AuthServerError::NoSupport.into());
        };
        let hold = self.settings().hold;
        let begun = timeout(hold, self.begin_one(account, oauth, reason)).await;
        let begun = begun.unwrap_or(Err(SignInError::Timeout(hold)));
        if let Err(error @ (SignInError::AuthServer(_) | SignInError::Timeout(_))) = &begun {
            self.failures
                .note(account.key().clone(), &error.to_string());
        }
        begun
    }

    /// Makes way for a new link at the caller's request: forgets a decline, but not a failure, and drops a flow that a
    /// browser has opened, which may not be the caller's.
    pub(crate) async fn ask_again(&self, account: &Account) -> Result<(), FlowStoreError> {
        let AccountKey { caller, server_url } = account.key();
        let flow = self.current_flow(caller, server_url).await?;
        let is_taken = |flow: &Flow| {
            let authorization = flow.authorization();
            flow.taken.is_some()
                || authorization.is_some_and(|authorization| authorization.browser.is_some())
        };
        let taken = flow.filter(is_taken);
        // Its browser may show a page that says that the client is unknown.
        if let Some((flow, authorization)) = taken
            .as_ref()
            .and_then(|it| Some((it, it.authorization()?)))
        {
            self.forget_client(flow, &authorization.client, Doubt::Suspected)
                .await;
        }
        let taken = taken.map(|flow| flow.id);
        let forget = |signing: &mut FlowState| {
            let was_declined = signing.forget_decline();
            let is_taken = taken.is_some() && signing.flow == taken;
            if is_taken {
                signing.flow = None;
            }
            was_declined || is_taken
        };
        self.flow_store
            .change_signing(caller, server_url, forget)
            .await?;
        if let Some(taken) = taken {
            self.forget(&taken).await;
        }
        Ok(())
    }

    /// What [`Flows::begin`] does, without its deadline. One at a time per account.
    async fn begin_one(
        &self,
        account: &Account,
        oauth: &ServerOAuth,
        reason: &SignInReason,
    ) -> Result<Flow, SignInError> {
        let key = account.key();
        let one = self.beginning_of(key);
        let _one = one.lock().await;
        let now = clock::unix_seconds();
        // Read first: a sign-out from here on makes the flow worthless.
        let since = Since {
            sign_outs: self.grants.sign_outs(&key.caller, &key.server_url).await?,
            sign_in: reason.refused.sign_in,
            missing_scopes: reason.missing_scopes().to_vec(),
        };
        let before = self
            .flow_store
            .signing(&key.caller, &key.server_url)
            .await?;
        match before.not_asked(now).cloned() {
            Some(FlowOutcome::Declined { said }) => return Err(SignInError::Declined { said }),
            Some(FlowOutcome::Failed(why)) => {
                let left = u64::try_from(before.not_asked_until - now).unwrap_or(0);
                let again_in = Duration::from_secs(left);
                return Err(SignInError::Failed { why, again_in });
            }
            Some(FlowOutcome::SignedIn) | None => {}
        }
        if self.opens_browser() && !reason.is_step_up {
            check_age(reason.refused, now)?;
        }
        if let Some(flow) = self.under_way(&before, now).await? {
            let is_fitting =
                reason.is_covered_by(flow.scopes()) && self.is_as_configured(&flow, oauth);
            // One that is finishing has its answer: its tokens are nearly here.
            if flow.is_finishing(now) || (flow.is_open(now) && is_fitting) {
                return Ok(flow);
            }
        }
        self.failures.check(key)?;
        let granted = match reason.is_step_up {
            true => self.granted_scopes(key).await?,
            false => Vec::new(),
        };
        if reason.is_step_up {
            self.step_ups.count(key, reason.is_covered_by(&granted))?;
        }
        let kind = self.kind(oauth)?;
        let auth_server = self.auth_servers.of(&key.server_url)?;
        let discovery = auth_server.discover(reason.challenge.as_ref()).await?;
        if before.flow.is_some() && before.current(now).is_none() {
            self.forget_unfinished_registration(key, &kind, &discovery)
                .await?;
        }
        let scopes = requested_scopes(oauth, &discovery, reason, granted);
        let awaited = self.first_input(key, oauth, &kind, &auth_server, &discovery, scopes);
        let (awaited, ends) = (awaited.await?, now + seconds(self.settings().deadline));
        let flow = Flow::new(key, &account.server, discovery, kind, awaited, ends, since);
        let flow = flow.map_err(FlowStoreError::from)?;
        self.publish(flow, before, now).await
    }

    /// Held by the one request that starts a sign-in of this account.
    fn beginning_of(&self, key: &AccountKey) -> Arc<tokio::sync::Mutex<()>> {
        let mut beginning = self.beginning.lock();
        beginning.retain(|_, one| Arc::strong_count(one) > 1);
        Arc::clone(beginning.entry(key.clone()).or_default())
    }

    /// Makes a new flow the one under way, in place of the one before. Another gateway may have started one
    /// meanwhile: then that one is returned.
    async fn publish(&self, flow: Flow, before: FlowState, now: i64) -> Result<Flow, SignInError> {
        self.flow_store.add(&flow).await?;
        let replaced = before.flow;
        let state = self
            .flow_store
            .change_signing(&flow.caller, &flow.server_url, |state| {
                let is_free = state.current(now).is_none() || state.flow == replaced;
                if is_free {
                    (state.flow, state.ends) = (Some(flow.id.clone()), flow.ends);
                }
                is_free
            })
            .await?;
        if state.flow.as_ref() == Some(&flow.id) {
            tracing::info!(server = %flow.server, flow = ?flow.id, "sign-in started");
            if let Some(replaced) = replaced {
                self.forget(&replaced).await;
                self.changed.notify_waiters();
            }
            if let Some(loopback) = &self.loopback {
                loopback.started(&flow);
            }
            return Ok(flow);
        }
        self.forget(&flow.id).await;
        match self.under_way(&state, now).await? {
            Some(flow) => Ok(flow),
            None => Err(FlowStoreError::Contended.into()),
        }
    }

    /// The kind of a new flow at a server with these settings.
    fn kind(&self, oauth: &ServerOAuth) -> Result<FlowKind, SignInError> {
        if let Some(loopback) = &self.loopback {
            let address = loopback.address();
            return Ok(FlowKind::Loopback(
                address.map_err(SignInError::NoListener)?,
            ));
        }
        Ok(match (oauth.flow, &oauth.redirect_uri) {
            (config::Flow::ClientDriven, _) => FlowKind::ClientDriven,
            (_, Some(uri)) => FlowKind::Drive {
                redirect_uri: uri.as_str().to_owned(),
            },
            (_, None) => FlowKind::Managed {
                pages: self.public_url().to_owned(),
            },
        })
    }

    /// Whether a flow would still be started like this: the operator may have changed the configuration.
    fn is_as_configured(&self, flow: &Flow, oauth: &ServerOAuth) -> bool {
        let is_for_client = matches!(flow.awaited, AwaitedInput::Client { .. });
        let is_of_kind = match &flow.kind {
            FlowKind::Loopback(_) => self.loopback.is_some(),
            // Any gateway's pages will do: people come back to them.
            FlowKind::Managed { .. } => {
                oauth.flow != config::Flow::ClientDriven && oauth.redirect_uri.is_none()
            }
            kind => self.kind(oauth).is_ok_and(|now| now == *kind),
        };
        is_of_kind
            && !(is_for_client && oauth.client.is_some())
            && Trust::of(oauth).check(&flow.discovery).is_ok()
    }

    async fn granted_scopes(&self, key: &AccountKey) -> Result<Vec<String>, VaultError> {
        let vault = self.grants.vault();
        let signed_in = vault.signed_in(&key.caller, &key.server_url).await?.value;
        let Some(grant) = signed_in.and_then(|it| it.grant) else {
            return Ok(Vec::new());
        };
        let grant = vault.grant(&grant).await?.value;
        Ok(grant.map(|grant| grant.scopes).unwrap_or_default())
    }
}

/// Fails if the server refuses a token that is new: it would refuse the next one as well.
fn check_age(refused: RefusedGrant, now: i64) -> Result<(), SignInError> {
    // The number is the date, or more.
    let signed_in = i64::try_from(refused.sign_in).unwrap_or(i64::MAX);
    let left = signed_in.saturating_add(FAILURE_REMEMBERED) - now;
    match u64::try_from(left) {
        Ok(left @ 1..) if !refused.was_accepted => Err(SignInError::Failed {
            why: "the server does not accept its token".to_owned(),
            again_in: Duration::from_secs(left),
        }),
        _ => Ok(()),
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}
