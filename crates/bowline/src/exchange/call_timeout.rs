//! A call's timeout: how long it may go without an answer or a sign of progress, whatever it waits for:
//! the server, a recovery, or a stream that is gone on with.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::message::Message;
use bowline_wire::sse::event_of;
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use crate::exchange::cancel::cancel;
use crate::exchange::recovery::{Cause, recover_in_background};
use crate::exchange::send::Request;
use crate::fault::Fault;
use crate::leg::Leg;
use crate::session::Session;
use crate::upstream::UpstreamError;

/// The timeout of one call.
#[derive(Debug)]
pub(crate) struct CallTimeout {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// Weak: the stream that holds this belongs to the session.
    session: Weak<Session>,
    /// The request's id (JSON text).
    id: Box<str>,
}

impl CallTimeout {
    /// The timeout that the configuration allows a call, if it sets a limit.
    pub(crate) fn of(session: &Arc<Session>, request: &Message) -> Option<Self> {
        let limit = session.upstream.config().call_timeout?;
        Some(Self {
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
            session: Arc::downgrade(session),
            id: request.id()?.into(),
        })
    }

    /// How long what nobody answers may take to be taken: as long as a call, or else as long as a
    /// recovery.
    pub(crate) fn of_notice(session: &Session) -> Duration {
        let server = session.upstream.config();
        server.call_timeout.unwrap_or(server.recovery.budget)
    }

    /// Does something of a call's as long as there is timeout, if that has a limit.
    pub(crate) async fn within<T>(
        timeout: &mut Option<Self>,
        work: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        match timeout {
            None => work.await,
            Some(timeout) => tokio::select! {
                biased;
                done = work => done,
                error = std::future::poll_fn(|cx| timeout.poll(cx)) => Err(error),
            },
        }
    }

    /// The same while the call waits for its session to be recovered. That goes on when patience is over,
    /// for the next call: otherwise a recovery that takes longer than a call may would never end.
    pub(crate) async fn within_recovery<T>(
        timeout: &mut Option<Self>,
        request: &Request<'_>,
        leg: &Arc<Leg>,
        work: impl Future<Output = Result<T, UpstreamError>>,
    ) -> Result<T, UpstreamError> {
        let Some(timeout) = timeout else {
            return work.await;
        };
        let is_over = std::future::poll_fn(|cx| {
            let error = std::task::ready!(timeout.poll(cx));
            recover_in_background(request.session, leg, Cause::of(leg), request.carried);
            Poll::Ready(error)
        });
        tokio::select! {
            biased;
            done = work => done,
            error = is_over => Err(error),
        }
    }

    /// Something was heard.
    pub(crate) fn put_off(&mut self) {
        let next = Instant::now() + self.limit;
        self.timer.as_mut().reset(next);
    }

    /// Ready when patience is over. The server is told that the call is cancelled.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        std::task::ready!(self.timer.as_mut().poll(cx));
        if let Some(session) = self.session.upgrade() {
            cancel(session, &self.id, "no answer in time");
        }
        Poll::Ready(UpstreamError::CallTimeout(self.limit))
    }

    /// The same for an answer that has begun, whose status no longer tells: it is counted here.
    pub(crate) fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        let error = std::task::ready!(self.poll(cx));
        if let Some(session) = self.session.upgrade() {
            count(
                &session,
                &Fault::on(&session.leg(), UpstreamError::CallTimeout(self.limit)),
            );
        }
        Poll::Ready(error)
    }

    /// The event that tells the client, on a stream that has begun.
    pub(crate) fn event(&self, error: UpstreamError) -> Option<Bytes> {
        let session = self.session.upgrade()?;
        let fault = Fault::on(&session.leg(), error);
        Some(event_of(fault.body(Some(&self.id)).as_bytes()))
    }
}

/// The last word about the request with this id (JSON text), as an event on the stream that was to
/// answer it. Its status no longer tells, so it is counted here.
pub(crate) fn last_word(session: &Session, id: &str, error: UpstreamError) -> Bytes {
    let fault = Fault::on(&session.leg(), error);
    count(session, &fault);
    event_of(fault.body(Some(id)).as_bytes())
}

fn count(session: &Session, fault: &Fault) {
    let reason = fault.row().name;
    session.upstream.metrics.refused(reason);
    tracing::info!(
        reason,
        session = %session.hash,
        server = %session.upstream.name,
        "an answer was given up"
    );
}
