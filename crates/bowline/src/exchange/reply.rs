//! The reply to a client's message: nothing, one message, events, or a stream. Each front writes it in its
//! own transport.

use bowline_wire::compose;
use bowline_wire::message::{Kind, Message, RawId};
use bowline_wire::sse::Event;
use bytes::Bytes;

use crate::exchange::batch::joined::Joined;
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::stream::outlet::Outlet;
use crate::exchange::stream::relay::{EventRelay, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::fault::{Fault, LogContext};
use crate::session::Session;
use crate::upstream::{SentAs, Whole};

/// The reply to a client's message. `S` is its stream: as it comes from a leg, or as a client reads it.
#[derive(Debug)]
pub(crate) enum Reply<S = Outlet> {
    /// Accepted, without a message.
    Accepted,
    /// One message, or an array of messages, complete in memory.
    Message { body: Bytes, sent_as: SentAs },
    /// Events that have all arrived.
    Events(Vec<Event>),
    /// A response that is still arriving.
    Stream(S),
    /// The answers of a batch, message by message as they arrive.
    Batch(Box<Joined>),
}

/// A streamed response before it becomes one of the session's streams.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) relay: Relay,
    pub(crate) sent_as: SentAs,
    /// How to resume it if it breaks.
    pub(crate) rescue: Option<Box<Rescue>>,
}

impl<S> Reply<S> {
    /// A message from Bowline itself.
    pub(crate) fn own(body: impl Into<Bytes>) -> Self {
        Self::Message {
            body: body.into(),
            sent_as: SentAs::own(),
        }
    }

    /// A result (JSON text) from Bowline itself.
    pub(crate) fn result(request: &Message, result: &str) -> Self {
        let id = request.id().unwrap_or(RawId::NULL);
        Self::own(compose::result(id, result))
    }

    /// The error for a request that is not sent. It is the response to the request, not a status.
    pub(crate) fn refusal(session: &Session, request: &Message, why: &Fault) -> Self {
        session.upstream.metrics.refused(why.row().name);
        why.log(&LogContext {
            server: Some(&session.upstream.name),
            session: Some(session.hash),
            status: None,
        });
        Self::own(why.body(request.id()))
    }

    /// Whether it is one complete JSON-RPC response.
    pub(crate) fn is_message(&self) -> bool {
        let Self::Message { body, .. } = self else {
            return false;
        };
        Message::parse(body.clone()).is_ok_and(|message| message.kind() == Kind::Response)
    }

    /// The same reply with another kind of stream.
    pub(crate) fn map_stream<T>(self, make: impl FnOnce(S) -> T) -> Reply<T> {
        match self {
            Self::Accepted => Reply::Accepted,
            Self::Message { body, sent_as } => Reply::Message { body, sent_as },
            Self::Events(events) => Reply::Events(events),
            Self::Stream(stream) => Reply::Stream(make(stream)),
            Self::Batch(joined) => Reply::Batch(joined),
        }
    }
}

impl<S> From<Whole> for Reply<S> {
    fn from(whole: Whole) -> Self {
        Self::Message {
            body: whole.body,
            sent_as: whole.sent_as,
        }
    }
}

impl Reply<Arriving> {
    /// A stream of events.
    pub(crate) fn stream(events: Box<EventRelay>, rescue: Option<Box<Rescue>>) -> Self {
        Self::Stream(Arriving {
            relay: Relay::Events(events),
            sent_as: SentAs::events(),
            rescue,
        })
    }

    /// The same, or one body if all events have arrived.
    pub(crate) async fn events(
        mut events: Box<EventRelay>,
        rescue: impl FnOnce() -> Option<Box<Rescue>>,
    ) -> Self {
        match events.at_once().await {
            true => Self::Events(events.take_ready()),
            false => Self::stream(events, rescue()),
        }
    }

    /// Ends the stream when its call times out.
    pub(crate) fn with_timeout(self, timeout: Option<CallTimeout>) -> Self {
        if timeout.is_none() {
            return self;
        }
        self.map_stream(|arriving| Arriving {
            relay: arriving.relay.with_timeout(timeout),
            ..arriving
        })
    }

    /// The part of the reply that was read already; the rest of a stream is dropped.
    pub(crate) fn into_held(self) -> Self {
        self.into_whole()
    }

    /// The same as a reply that cannot have a stream.
    pub(crate) fn into_whole<S>(self) -> Reply<S> {
        match self {
            Self::Accepted => Reply::Accepted,
            Self::Message { body, sent_as } => Reply::Message { body, sent_as },
            Self::Events(events) => Reply::Events(events),
            Self::Stream(Arriving {
                relay: Relay::Events(mut events),
                ..
            }) => Reply::Events(events.take_ready()),
            Self::Stream(_) => Reply::Accepted,
            Self::Batch(joined) => Reply::Batch(joined),
        }
    }
}
