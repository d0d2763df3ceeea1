//! A call's timeout: how long it may go without a response or a progress notification, whether it waits for
//! the server, for a recovery or for a stream that is being resumed.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::sse::Event;
use tokio::time::{Instant, Sleep};

use crate::exchange::cancel::give_up;
use crate::fault::Fault;
use crate::session::{Call, Session};
use crate::upstream::UpstreamError;

/// The timeout of one call.
#[derive(Debug)]
pub(crate) struct CallTimeout {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// Weak: the stream that holds this belongs to the session.
    session: Weak<Session>,
    call: Arc<Call>,
}

impl CallTimeout {
    /// The timeout of this call, if the configuration sets one.
    pub(crate) fn of(session: &Arc<Session>, call: &Arc<Call>) -> Option<Self> {
        let limit = session.upstream.config().call_timeout?;
        Some(Self {
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
            session: Arc::downgrade(session),
            call: Arc::clone(call),
        })
    }

    /// How long a server may take to accept a notification or a response: `call_timeout`, or else the
    /// recovery budget.
    pub(crate) fn of_notice(session: &Session) -> Duration {
        let server = session.upstream.config();
        server.call_timeout.unwrap_or(server.recovery.budget)
    }

    /// Runs `work` until the timeout, if there is one.
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

    /// Restarts the timer, because the server sent something.
    pub(crate) fn put_off(&mut self) {
        let next = Instant::now() + self.limit;
        self.timer.as_mut().reset(next);
    }

    /// Ready when the timeout is over. It cancels the call at the server.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        std::task::ready!(self.timer.as_mut().poll(cx));
        if let Some(session) = self.session.upgrade() {
            give_up(&session, &self.call);
        }
        Poll::Ready(UpstreamError::CallTimeout(self.limit))
    }

    /// The same for a response that has begun. Its HTTP status was sent already, so the timeout is counted
    /// here.
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

    /// The error as an event for a stream that has begun.
    pub(crate) fn event(&self, error: UpstreamError) -> Option<Event> {
        let session = self.session.upgrade()?;
        let fault = Fault::on(&session.leg(), error);
        Some(Event::of_message(fault.body(Some(self.call.id()))))
    }
}

/// Counts and logs an error on a stream that has begun.
pub(crate) fn count(session: &Session, fault: &Fault) {
    let reason = fault.row().name;
    session.upstream.metrics.refused(reason);
    tracing::info!(
        reason,
        session = %session.hash,
        server = %session.upstream.name,
        "response ended with an error"
    );
}
