//! The stream of a client over HTTP+SSE as the body of its GET: the URL for messages, then every message as an event, with a
//! heartbeat in between.

use std::task::{Context, Poll};

use bowline_wire::sse::named_event;
use bytes::Bytes;
use tokio_util::sync::DropGuard;

use super::Heartbeat;
use crate::front::client::outgoing::Messages;
use crate::share::Permit;

/// The stream of a client. Dropping it is the client's disconnect.
#[derive(Debug)]
pub(crate) struct MessagesBody {
    /// The first event, until it is sent.
    endpoint: Option<Bytes>,
    messages: Messages,
    heartbeat: Heartbeat,
    _place: Permit,
    _left: DropGuard,
}

impl MessagesBody {
    pub(in crate::front) fn new(
        endpoint: &str,
        messages: Messages,
        place: Permit,
        left: DropGuard,
    ) -> Self {
        Self {
            endpoint: Some(named_event("endpoint", endpoint.as_bytes())),
            messages,
            heartbeat: Heartbeat::new(),
            _place: place,
            _left: left,
        }
    }

    /// The next event, or a sign of life; `None` at the end.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(endpoint) = self.endpoint.take() {
            return Poll::Ready(Some(endpoint));
        }
        match self.messages.0.poll_recv(cx) {
            Poll::Ready(waiting) => {
                self.heartbeat.put_off();
                let waiting = waiting.flatten();
                Poll::Ready(waiting.map(|waiting| named_event("message", &waiting.message)))
            }
            Poll::Pending => self.heartbeat.poll(cx).map(Some),
        }
    }
}
