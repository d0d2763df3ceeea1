//! A call's patience: how long it may go without an answer or a sign of progress.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_wire::message::Message;
use bytes::Bytes;
use tokio::time::{Instant, Sleep};

use crate::body::Sent;
use crate::session::Session;
use crate::upstream::{Carried, UpstreamError};

/// How long telling the server may take.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

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
            cancel(session, &self.id);
        }
        Poll::Ready(UpstreamError::CallTimeout(self.limit))
    }

    /// The event that tells the client, on a stream that has begun.
    pub(crate) fn event(&self, error: UpstreamError) -> Option<Bytes> {
        let session = self.session.upgrade()?;
        let fault = session.leg().fault(error);
        Some(format!("event: message\ndata: {}\n\n", fault.body(Some(&self.id))).into())
    }
}

/// Tells the server that nobody waits for a request any more.
fn cancel(session: Arc<Session>, id: &str) {
    let sent_as = session.calls.sent_as(id);
    let id = sent_as.as_deref().unwrap_or(id);
    let cancelled = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"no answer in time"}}}}"#
    );
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(tokio::time::timeout(CANCEL_TIMEOUT, async move {
        let leg = session.leg();
        leg.upstream
            .post(
                leg.link(&Carried::default()),
                cancelled.into(),
                Sent::default(),
            )
            .await
            .is_ok()
    }));
}
