//! Messages without a response: a client's notification, or its response to a server's request.

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::message::{Message, RawId};
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::cancel::cancel_for_client;
use crate::exchange::recovery::{Cause, recover, recover_in_background};
use crate::exchange::replay::retry::is_forgotten;
use crate::exchange::reply::Reply;
use crate::leg::Leg;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::proof::SessionState;
use crate::session::Session;
use crate::session_store::announcement::Announcement;
use crate::upstream::{Carried, UpstreamError};

/// A notification or a response, and what it is sent with.
#[derive(Debug, Clone)]
pub(crate) struct Notice<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// As the client sent it.
    pub(crate) message: &'a Message,
    /// As the server gets it.
    pub(crate) body: Bytes,
    pub(crate) carried: &'a Carried,
    pub(crate) sent: Sent,
}

/// How often the server failed to take a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    NotYet,
    Once,
}

/// Sends a notification or a response. It is accepted also if the session is lost: what it refers to is lost,
/// too, or is restored by the recovery. A server that does not accept it in time does not delay the messages
/// that follow.
pub(crate) async fn notify<S>(notice: Notice<'_>) -> Result<Reply<S>, UpstreamError> {
    let (session, carried) = (notice.session, notice.carried);
    let limit = CallTimeout::of_notice(session);
    let result = tokio::time::timeout(limit, notify_untimed(notice)).await;
    result.unwrap_or_else(|_| {
        let leg = session.leg();
        if leg.is_lost() {
            // The next message needs the session.
            recover_in_background(session, &leg, Cause::Lost, carried);
        }
        Err(UpstreamError::NotTaken(limit))
    })
}

async fn notify_untimed<S>(notice: Notice<'_>) -> Result<Reply<S>, UpstreamError> {
    let (session, message, carried) = (notice.session, notice.message, notice.carried);
    #[cfg(feature = "planted")]
    if message.cancelled_request().is_some() && planted::has(Bug::CancelForgotten) {
        return Ok(Reply::Accepted);
    }
    notice.cancel_call();
    let leg = session.leg();
    if is_about_a_call(message) && session.recovery.is_under_way() {
        notice.deliver_later(&leg, Failed::NotYet);
        return Ok(Reply::Accepted);
    }
    let error = match notice.send(&leg).await {
        Ok(reply) => {
            session.remember(message).await;
            return Ok(reply);
        }
        Err(error) => error,
    };
    let cause = match error.proof().session {
        SessionState::Alive => return Err(error),
        SessionState::Lost => Cause::Lost,
        SessionState::Unproven if matches!(error, UpstreamError::Declined(_)) => {
            match Box::pin(is_forgotten(session, &leg, carried)).await {
                true => Cause::Lost,
                false => return Err(error),
            }
        }
        SessionState::Unproven => Cause::Unproven,
    };
    if leg.generation.is_unopened() {
        // The server gets it once the leg is open.
        session.remember(message).await;
        return Ok(Reply::Accepted);
    }
    if message.method() == Some("notifications/initialized") {
        session.remember(message).await;
    }
    if !is_safe(message, cause) {
        recover_in_background(session, &leg, cause, carried);
        return match cause {
            // What it refers to was lost with the session.
            Cause::Lost | Cause::Drained => Ok(Reply::Accepted),
            Cause::Unproven => Err(UpstreamError::OutcomeUnknown(error.to_string().into())),
        };
    }
    if is_about_a_call(message) {
        notice.deliver_later(&leg, Failed::Once);
        return Ok(Reply::Accepted);
    }
    let recovered = Box::pin(recover(session, &leg, cause, carried)).await?;
    let is_for_any = message.method() == Some("notifications/roots/list_changed");
    match is_for_any || recovered.generation == leg.generation {
        true => notice.send(&recovered).await,
        // What it refers to was lost, or was restored by the recovery.
        false => Ok(Reply::Accepted),
    }
}

/// Whether it is about a call under way. What it says is done here, or is of no use any more when the session is
/// recovered, so its client does not wait for that.
fn is_about_a_call(message: &Message) -> bool {
    matches!(
        message.method(),
        Some("notifications/cancelled" | "notifications/progress")
    )
}

/// Whether the server may get this notification or response twice.
fn is_safe(message: &Message, cause: Cause) -> bool {
    match message.method() {
        Some("notifications/initialized" | "notifications/roots/list_changed") => true,
        // If the session is lost, what they refer to is lost, too.
        _ if is_about_a_call(message) => cause == Cause::Unproven,
        // A client's response: a server ignores a second one.
        None => true,
        _ => false,
    }
}

impl Notice<'_> {
    /// Cancels the calls that a `notifications/cancelled` names, here and at the other gateways. The notification itself
    /// names the client's id: an attempt may run under it, or a call of another gateway.
    fn cancel_call(&self) {
        let Some(span) = self.message.cancelled_request() else {
            return;
        };
        let id = RawId::new(self.message.text(span));
        let session = self.session;
        session.calls.cancel(id);
        session.announce(|session| Announcement::Cancelled(session, id.to_buf()));
        for name in session.calls.names(id) {
            cancel_for_client(session, &name);
        }
    }

    /// Sends it in the background, again if a recovery finds the session alive. If it does not, what it refers to was
    /// lost.
    fn deliver_later(&self, leg: &Arc<Leg>, failed: Failed) {
        // The call that waits for the recovery leaves it now; the next message needs the session.
        recover_in_background(self.session, leg, Cause::of(leg), self.carried);
        if leg.is_lost() {
            return;
        }
        let (session, leg) = (Arc::clone(self.session), Arc::clone(leg));
        let (message, body) = (self.message.clone(), self.body.clone());
        let (carried, sent) = (self.carried.clone(), self.sent.clone());
        let limit = CallTimeout::of_notice(&session);
        let tracker = session.upstream.tracker().clone();
        tracker.spawn(tokio::time::timeout(limit, async move {
            let notice = Notice {
                session: &session,
                message: &message,
                body,
                carried: &carried,
                sent,
            };
            if failed == Failed::NotYet {
                let sent = notice.send::<()>(&leg).await.map_err(|error| error.proof());
                if !sent.is_err_and(|proof| proof.session == SessionState::Unproven) {
                    return;
                }
            }
            let recovered = recover(&session, &leg, Cause::Unproven, &carried).await;
            if let Ok(now) = recovered
                && now.generation == leg.generation
                && let Err(error) = notice.send::<()>(&now).await
            {
                tracing::debug!(%error, "a notification about a call was not delivered");
            }
        }));
    }

    async fn send<S>(&self, leg: &Leg) -> Result<Reply<S>, UpstreamError> {
        if leg.is_lost() {
            return Err(UpstreamError::SessionLost);
        }
        let link = leg.link(self.carried);
        let answer = leg
            .upstream
            .notify(link, self.body.clone(), self.sent.clone());
        Ok(match answer.await? {
            None => Reply::Accepted,
            Some(whole) => whole.into(),
        })
    }
}
