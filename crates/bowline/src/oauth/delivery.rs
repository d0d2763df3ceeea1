//! How a sign-in ends: the authorization server's answer reaches any gateway by any route, and its tokens are
//! stored.
//!
//! An answer counts once, and only for the flow that is under way for its account: a flow that was replaced
//! is dead, even while its code is being exchanged.

mod refusal;
mod save;

use std::sync::Arc;

use bowline_system::clock;
use thiserror::Error;
use tokio::time::Instant;

use self::refusal::{code_of, refusal};
use self::save::Backoff;
use super::auth_server::check_issuer;
use super::auth_server_error::AuthServerError;
use super::flow::{Authorization, Flow, FlowId, FlowOutcome};
use super::flow_store::FlowStoreError;
use super::flows::Flows;
use super::given_up::Doubt;
use super::secret::Secret;
use super::sign_in_error::SignInError;

/// How long a caller that declined is not asked again, in seconds.
const DECLINE_REMEMBERED: i64 = 10 * 60;

/// How long no other browser is opened after a sign-in that failed, in seconds: what failed fails again, and every
/// call would open one.
pub(super) const FAILURE_REMEMBERED: i64 = 60;

/// An authorization server's answer.
#[derive(Debug)]
pub(crate) enum Delivery {
    Code {
        code: Secret,
        iss: Option<String>,
    },
    /// An error code, and its description for people.
    Error {
        error: String,
        description: Option<String>,
        iss: Option<String>,
    },
}

/// The route by which an answer came.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DeliveryRoute<'a> {
    /// This gateway's own page, with the secret that the browser got from the start page.
    Browser(Option<&'a str>),
    /// A host or a client that forwards the answer and may not know about `iss`.
    Forwarded,
    /// The flow's own listener on the loopback interface.
    Loopback,
}

/// Why an answer was refused. The flow, if there is one, continues.
#[derive(Debug, Error)]
pub(crate) enum DeliveryError {
    /// The state is unknown, used or expired, or belongs to another browser.
    #[error("no sign-in is waiting for this answer")]
    UnknownFlow,
    #[error("the answer is from another authorization server (iss)")]
    IssuerMismatch,
    #[error(transparent)]
    Store(#[from] FlowStoreError),
    #[error("the sign-in was aborted")]
    Aborted,
}

// === impl Flows ===

impl Flows {
    /// Takes an authorization server's answer. Its state is verified; an answer that is refused changes
    /// nothing. Returns how the sign-in ended, and notifies every wait.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        state: &str,
        delivery: Delivery,
        route: DeliveryRoute<'_>,
    ) -> Result<FlowOutcome, DeliveryError> {
        let (flow, iss) = self.admit(state, &delivery, route).await?;
        let id = flow.id;
        // A flow that was taken is finished even if the request that brought the answer is dropped: a code
        // can be exchanged only once.
        let flows = Arc::clone(self);
        let finishing = async move { flows.finish(&id, delivery, iss.as_deref()).await };
        match self.grants.tracker().spawn(finishing).await {
            Ok(finished) => finished,
            Err(_) => Err(DeliveryError::Aborted),
        }
    }

    /// The flow that waits for this answer. Nothing is changed: a page may ask first.
    pub(crate) async fn awaiting(
        &self,
        state: &str,
        delivery: &Delivery,
        route: DeliveryRoute<'_>,
    ) -> Result<Flow, DeliveryError> {
        let (flow, _) = self.admit(state, delivery, route).await?;
        match self.is_under_way(&flow).await? {
            true => Ok(flow),
            false => Err(DeliveryError::UnknownFlow),
        }
    }

    /// The flow of an answer, and the answer's issuer, if the answer may be delivered by this route.
    async fn admit(
        &self,
        state: &str,
        delivery: &Delivery,
        route: DeliveryRoute<'_>,
    ) -> Result<(Flow, Option<String>), DeliveryError> {
        let id = FlowId::of(state);
        let Some(flow) = self.flow_store.flow(&id).await? else {
            self.note_stray();
            return Err(DeliveryError::UnknownFlow);
        };
        let authorization = flow.authorization().ok_or(DeliveryError::UnknownFlow)?;
        let may_deliver = match route {
            DeliveryRoute::Loopback => flow.loopback().is_some(),
            // A managed flow takes its answer only from the browser that left from its start page. Other
            // flows take none from a browser: a host authenticates with the API token, if one is set.
            DeliveryRoute::Forwarded => !flow.returns_to_bowline(),
            DeliveryRoute::Browser(shown) => match (&authorization.browser, shown) {
                (Some(secret), Some(shown)) => flow.is_managed() && secret.is(shown),
                _ => false,
            },
        };
        if !authorization.request.state.is(state)
            || !flow.is_open(clock::unix_seconds())
            || !may_deliver
        {
            return Err(DeliveryError::UnknownFlow);
        }
        let (Delivery::Code { iss, .. } | Delivery::Error { iss, .. }) = &delivery;
        let iss = match (iss, route) {
            // The host forwarded what it knows, which may not include `iss`.
            (None, DeliveryRoute::Forwarded) => Some(flow.discovery.issuer.clone()),
            (iss, _) => iss.clone(),
        };
        check_issuer(&flow.discovery, iss.as_deref()).map_err(|_| DeliveryError::IssuerMismatch)?;
        Ok((flow, iss))
    }

    /// Notes an answer whose state is that of no flow: it is forged, used or too late. Nobody knows whose it is, and
    /// anybody can send one, so it ends no flow.
    pub(crate) fn note_stray(&self) {
        tracing::info!("sign-in answer refused: no sign-in has its state");
        *self.last_stray.lock() = Some(Instant::now());
    }

    /// Whether such an answer came since then.
    pub(crate) fn had_stray_since(&self, since: Instant) -> bool {
        self.last_stray.lock().is_some_and(|stray| since <= stray)
    }

    /// Takes a flow for one answer, and ends it.
    async fn finish(
        &self,
        id: &FlowId,
        delivery: Delivery,
        iss: Option<&str>,
    ) -> Result<FlowOutcome, DeliveryError> {
        let flow = self.take(id).await?;
        let outcome = match delivery {
            Delivery::Code { code, .. } => match flow.authorization() {
                Some(authorization) => self.exchange(&flow, authorization, &code, iss).await,
                None => return Err(DeliveryError::UnknownFlow),
            },
            Delivery::Error {
                error, description, ..
            } => {
                let (server, code) = (&flow.server, code_of(&error));
                tracing::info!(%server, flow = ?id, code, "sign-in refused by the authorization server");
                refusal(&error, description.as_deref())
            }
        };
        self.end(&flow, outcome.clone()).await;
        Ok(outcome)
    }

    /// Takes a flow for its first answer, if it is the one under way. From then on requests wait for its
    /// outcome and start no other flow.
    pub(super) async fn take(&self, id: &FlowId) -> Result<Flow, DeliveryError> {
        let flow = self
            .flow_store
            .flow(id)
            .await?
            .ok_or(DeliveryError::UnknownFlow)?;
        if !self.is_under_way(&flow).await? {
            return Err(DeliveryError::UnknownFlow);
        }
        // If it is replaced from here on, that is noticed when it ends or when its tokens are stored.
        let now = clock::unix_seconds();
        let taken = self.flow_store.change(id, |flow| flow.take(now)).await?;
        taken.ok_or(DeliveryError::UnknownFlow)
    }

    async fn exchange(
        &self,
        flow: &Flow,
        authorization: &Authorization,
        code: &Secret,
        iss: Option<&str>,
    ) -> FlowOutcome {
        let exchanged = async {
            let auth_server = self.auth_servers.of(&flow.server_url)?;
            let tokens = auth_server
                .exchange(
                    &flow.discovery,
                    &authorization.client,
                    &authorization.request,
                    code.expose(),
                    iss,
                )
                .await?;
            self.keep(flow, authorization.client.clone(), tokens)
                .await?;
            if authorization.is_client_named {
                // Only now: a mistyped client id must not be stored.
                let kept = self.vault.put_named_client(
                    &flow.caller,
                    &flow.discovery.issuer,
                    &authorization.client,
                );
                kept.await?;
            }
            Ok(())
        };
        let exchanged = exchanged.await;
        if let Err(SignInError::AuthServer(AuthServerError::ClientRefused(_))) = &exchanged {
            self.forget_client(flow, &authorization.client, Doubt::Refused)
                .await;
        }
        outcome_of(flow, exchanged)
    }

    /// Ends a flow because the person or the client declined.
    pub(crate) async fn decline(&self, id: &FlowId) -> Result<FlowOutcome, DeliveryError> {
        let flow = self.take(id).await?;
        let outcome = FlowOutcome::Declined { said: None };
        self.end(&flow, outcome.clone()).await;
        Ok(outcome)
    }

    /// Ends a flow, and notifies every wait of its outcome.
    pub(super) async fn end(&self, flow: &Flow, outcome: FlowOutcome) {
        let mut backoff = Backoff::new();
        while let Err(error) = self.note_end(flow, &outcome).await {
            if !backoff.wait().await {
                tracing::warn!(%error, server = %flow.server, "sign-in outcome not saved");
                break;
            }
        }
        self.forget(&flow.id).await;
        self.changed.notify_waiters();
    }

    async fn note_end(&self, flow: &Flow, outcome: &FlowOutcome) -> Result<(), FlowStoreError> {
        let (id, now) = (&flow.id, clock::unix_seconds());
        tracing::info!(server = %flow.server, flow = ?id, end = outcome.name(), "sign-in ended");
        self.flow_store
            .change_signing(&flow.caller, &flow.server_url, |signing| {
                // A replaced flow must not end the one that replaced it.
                if signing.flow.as_ref() != Some(id) {
                    return false;
                }
                signing.flow = None;
                signing.not_asked_until = match outcome {
                    FlowOutcome::Declined { .. } => now + DECLINE_REMEMBERED,
                    FlowOutcome::Failed(_) if self.opens_browser() => now + FAILURE_REMEMBERED,
                    FlowOutcome::Failed(_) | FlowOutcome::SignedIn => 0,
                };
                signing.last = Some((id.clone(), outcome.clone()));
                true
            })
            .await?;
        Ok(())
    }
}

/// The outcome of a flow whose last step succeeded or failed.
pub(super) fn outcome_of(flow: &Flow, done: Result<(), SignInError>) -> FlowOutcome {
    match done {
        Ok(()) => FlowOutcome::SignedIn,
        Err(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, server = %flow.server, "sign-in failed");
            FlowOutcome::Failed(error.to_string())
        }
    }
}
