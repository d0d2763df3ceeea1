//! What nobody answers: a client's notification, or its answer to a server's request.

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::message::Message;
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::recovery::{Cause, recover, recover_in_background};
use crate::exchange::replay::retry::is_forgotten;
use crate::exchange::reply::Reply;
use crate::leg::{Generation, Leg};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::session::Session;
use crate::session_store::announcement::Announcement;
use crate::upstream::{Carried, SessionState, UpstreamError};

/// What is told, and all that it is sent with.
#[derive(Debug, Clone)]
pub(crate) struct Notice<'a> {
    pub(crate) session: &'a Arc<Session>,
    /// As the client said it.
    pub(crate) message: &'a Message,
    /// As the server hears it.
    pub(crate) body: Bytes,
    pub(crate) carried: &'a Carried,
    pub(crate) sent: Sent,
}

/// Sends what nobody answers. One that meets a loss is taken all the same; what it was about is gone, or is
/// said again by a recovery. A server that does not take it in time holds up nothing that comes after it.
pub(crate) async fn notify<S>(notice: Notice<'_>) -> Result<Reply<S>, UpstreamError> {
    let (session, carried) = (notice.session, notice.carried);
    let limit = CallTimeout::of_notice(session);
    let told = tokio::time::timeout(limit, notify_whenever(notice)).await;
    told.unwrap_or_else(|_| {
        let leg = session.leg();
        if leg.is_lost() {
            // Whoever comes next needs it.
            recover_in_background(session, &leg, Cause::Lost, carried);
        }
        Err(UpstreamError::NotTaken(limit))
    })
}

async fn notify_whenever<S>(mut notice: Notice<'_>) -> Result<Reply<S>, UpstreamError> {
    let (session, message, carried) = (notice.session, notice.message, notice.carried);
    if let Some(span) = message.cancelled_request() {
        #[cfg(feature = "planted")]
        if planted::has(Bug::CancelForgotten) {
            return Ok(Reply::Accepted);
        }
        let id = message.text(span);
        session.calls.cancel(id);
        session.announce(|session| Announcement::Cancelled(session, id.into()));
        if let Some(sent_as) = session.calls.sent_as(id) {
            notice.body = message.splice(span, &sent_as);
        }
    }
    let leg = session.leg();
    let error = match notice.tell(&leg).await {
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
    if leg.generation == Generation::UNOPENED {
        // The server hears it when there is a server to hear it.
        session.remember(message).await;
        return Ok(Reply::Accepted);
    }
    let (is_for_any, may_be_heard_twice) = match message.method() {
        Some("notifications/initialized") => {
            session.remember(message).await;
            (false, true)
        }
        Some("notifications/roots/list_changed") => (true, true),
        // Both may come twice; with the session, what they are about is lost.
        Some("notifications/cancelled" | "notifications/progress") => {
            (false, cause == Cause::Unproven)
        }
        // The client's answer, of which a server takes the first.
        None => (false, true),
        _ => (false, false),
    };
    if !may_be_heard_twice {
        recover_in_background(session, &leg, cause, carried);
        return match cause {
            // What it was about is gone.
            Cause::Lost | Cause::Drained => Ok(Reply::Accepted),
            Cause::Unproven => Err(UpstreamError::OutcomeUnknown(error.to_string().into())),
        };
    }
    let recovered = Box::pin(recover(session, &leg, cause, carried)).await?;
    match is_for_any || recovered.generation == leg.generation {
        true => notice.tell(&recovered).await,
        // What it was about is gone, or was said again by recovering.
        false => Ok(Reply::Accepted),
    }
}

impl Notice<'_> {
    async fn tell<S>(&self, leg: &Leg) -> Result<Reply<S>, UpstreamError> {
        if leg.is_lost() {
            return Err(UpstreamError::SessionLost);
        }
        let link = leg.link(self.carried);
        let told = leg
            .upstream
            .notify(link, self.body.clone(), self.sent.clone());
        Ok(match told.await? {
            None => Reply::Accepted,
            Some(whole) => whole.into(),
        })
    }
}
