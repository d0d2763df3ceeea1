//! A call's patience: how long it may go without an answer or a sign of progress.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::message::Message;
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use super::cancel::cancel;
use crate::session::Session;
use crate::upstream::UpstreamError;

/// The patience of one call.
#[derive(Debug)]
pub(crate) struct Overtime {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
    /// Weak: the stream that holds this belongs to the session.
    session: Weak<Session>,
    /// The request's id (JSON text).
    id: Box<str>,
}

impl Overtime {
    /// The patience that the configuration allows a call, if it sets a limit.
    pub(crate) fn of(session: &Arc<Session>, request: &Message) -> Option<Self> {
        let limit = session.upstream.server().call_timeout?;
        Some(Self {
            limit,
            timer: Box::pin(tokio::time::sleep(limit)),
            session: Arc::downgrade(session),
            id: request.id()?.into(),
        })
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
            let fault = session.leg().fault(UpstreamError::CallTimeout(self.limit));
            let reason = fault.telling().reason;
            session.upstream.metrics.refused(reason);
            tracing::info!(
                reason,
                session = %session.hash,
                server = %session.upstream.name,
                "an answer was given up"
            );
        }
        Poll::Ready(error)
    }

    /// The event that tells the client, on a stream that has begun.
    pub(crate) fn event(&self, error: UpstreamError) -> Option<Bytes> {
        let session = self.session.upgrade()?;
        let fault = session.leg().fault(error);
        Some(format!("event: message\ndata: {}\n\n", fault.body(Some(&self.id))).into())
    }
}
