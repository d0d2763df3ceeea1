//! Where the events of a stream come from: the body of a response, the messages of a live channel, or
//! another gateway.

use std::task::{Context, Poll, ready};

use bowline_egress::UpstreamBody;
use bowline_wire::sse::event_of;
use bytes::Bytes;

use super::body::poll_data;
use super::error::StreamError;
use super::live::Incoming;
use super::peer_events::PeerEvents;

/// Where the events of a stream come from.
#[derive(Debug)]
pub(crate) enum EventSource {
    /// Events as a server wrote them.
    Http(UpstreamBody),
    /// Messages of a live channel, each of which becomes an event without an id.
    Live(Incoming),
    /// Events that another gateway passes on, as they are.
    Peer(Box<PeerEvents>),
}

impl EventSource {
    /// The next bytes of the stream, wherever they cut an event.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        match self {
            Self::Http(body) => poll_data(body, cx).map_err(Into::into),
            Self::Peer(events) => events.poll_data(cx),
            Self::Live(incoming) => {
                let next = ready!(incoming.poll_next(cx));
                Poll::Ready(next.map(|message| message.map(|message| event_of(&message))))
            }
        }
    }
}
