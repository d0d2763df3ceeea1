//! What answers a client's message: nothing, one message, events, or a stream. How a client's transport
//! writes it down is the front's business.

use bowline_wire::compose;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;

use crate::exchange::batch::joined::Joined;
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::stream::outlet::Outlet;
use crate::exchange::stream::relay::{EventRelay, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::fault::{Fault, LogContext};
use crate::session::Session;
use crate::upstream::{SentAs, Whole};

/// What answers a client's message. `S` is its stream: as it comes from a leg, or as a client reads it.
#[derive(Debug)]
pub(crate) enum Reply<S = Outlet> {
    /// Taken, and there is nothing to say.
    Accepted,
    /// One message, or an array of them, held whole.
    Message { body: Bytes, sent_as: SentAs },
    /// Events that have all arrived, as SSE writes them.
    Events(Bytes),
    /// What is still to come.
    Stream(S),
    /// The answers to a batch, message by message as they come.
    Batch(Box<Joined>),
}

/// An answer that arrives in pieces, before anybody reads it.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) relay: Relay,
    pub(crate) sent_as: SentAs,
    /// How to go on if it breaks.
    pub(crate) rescue: Option<Box<Rescue>>,
}

impl<S> Reply<S> {
    /// A message of our own.
    pub(crate) fn own(body: impl Into<Bytes>) -> Self {
        Self::Message {
            body: body.into(),
            sent_as: SentAs::own(),
        }
    }

    /// A result (JSON text) of our own.
    pub(crate) fn result(request: &Message, result: &str) -> Self {
        let id = request.id().unwrap_or("null");
        Self::own(compose::result(id, result))
    }

    /// A request that is not sent, and why. In band: the client asked for something, and that is the answer.
    pub(crate) fn refusal(session: &Session, request: &Message, why: &Fault) -> Self {
        session.upstream.metrics.refused(why.row().name);
        why.log(&LogContext {
            server: Some(&session.upstream.name),
            session: Some(session.hash),
            status: None,
        });
        Self::own(why.body(request.id()))
    }

    /// Whether it is one message, held whole, that answers something.
    pub(crate) fn is_message(&self) -> bool {
        let Self::Message { body, .. } = self else {
            return false;
        };
        Message::parse(body.clone()).is_ok_and(|message| message.kind() == Kind::Response)
    }

    /// The same reply with its stream made into another one.
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
    /// The events of a stream.
    pub(crate) fn stream(events: Box<EventRelay>, rescue: Option<Box<Rescue>>) -> Self {
        Self::Stream(Arriving {
            relay: Relay::Events(events),
            sent_as: SentAs::events(),
            rescue,
        })
    }

    /// The same, or one body of them if all have arrived.
    pub(crate) async fn events(
        mut events: Box<EventRelay>,
        rescue: impl FnOnce() -> Option<Box<Rescue>>,
    ) -> Self {
        match events.at_once().await {
            Some(body) => Self::Events(body),
            None => Self::stream(events, rescue()),
        }
    }

    /// Ends its stream if its call waits for too long.
    pub(crate) fn with_timeout(self, timeout: Option<CallTimeout>) -> Self {
        if timeout.is_none() {
            return self;
        }
        self.map_stream(|arriving| Arriving {
            relay: arriving.relay.with_timeout(timeout),
            ..arriving
        })
    }

    /// The reply as far as it was read: what else a stream would bring is given up.
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
