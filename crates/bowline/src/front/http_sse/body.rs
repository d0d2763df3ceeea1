//! The stream of a client as the body of its GET: the URL for messages, then every message as an event, with a
//! heartbeat in between.

use std::task::{Context, Poll};

use bowline_wire::sse::named_event;
use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::DropGuard;

use crate::front::response::Heartbeat;
use crate::share::Permit;

/// The stream of a client. Dropping it is the client's disconnect.
#[derive(Debug)]
pub(crate) struct MessagesBody {
    /// The first event, until it is sent.
    endpoint: Option<Bytes>,
    messages: mpsc::Receiver<Option<Bytes>>,
    heartbeat: Heartbeat,
    _place: Permit,
    _left: DropGuard,
}

impl MessagesBody {
    pub(super) fn new(
        endpoint: &str,
        messages: mpsc::Receiver<Option<Bytes>>,
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
        match self.messages.poll_recv(cx) {
            Poll::Ready(message) => {
                self.heartbeat.put_off();
                let message = message.flatten();
                Poll::Ready(message.map(|message| named_event("message", &message)))
            }
            Poll::Pending => self.heartbeat.poll(cx).map(Some),
        }
    }
}
