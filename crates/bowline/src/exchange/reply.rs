//! The reply to a client's message: nothing, one message, events, or a stream. Each front writes it in its
//! own transport.

use std::future::poll_fn;

use bowline_wire::batch::is_batch;
use bowline_wire::compose;
use bowline_wire::message::{Kind, Message, RawId};
use bowline_wire::skip::MAX_MESSAGE;
use bowline_wire::sse::Event;
use bytes::{Bytes, BytesMut};

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::stream::Source;
use crate::exchange::stream::relay::{EventRelay, FrameRelay, Relay};
use crate::fault::{Fault, LogContext};
use crate::session::Session;
use crate::upstream::{SentAs, StreamError, UpstreamError, Whole};

/// The reply to a client's message. `S` is its stream: as it comes from a leg, or as a client reads it.
#[derive(Debug)]
pub(crate) enum Reply<S> {
    /// Accepted, without a message.
    Accepted,
    /// One message, or an array of messages, complete in memory.
    Message { body: Bytes, sent_as: SentAs },
    /// Events that have all arrived.
    Events(Vec<Event>),
    /// A response that is still arriving.
    Stream(S),
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

impl Reply<Relay> {
    /// A stream of events, or all of them if they have arrived.
    pub(crate) async fn events(mut events: Box<EventRelay>) -> Self {
        match events.at_once().await {
            true => Self::Events(events.take_ready()),
            false => Self::Stream(Relay::Events(events)),
        }
    }

    /// Ends the stream when its call times out.
    pub(crate) fn with_timeout(mut self, timeout: Option<CallTimeout>) -> Self {
        if let Self::Stream(relay) = &mut self
            && timeout.is_some()
        {
            relay.set_timeout(timeout);
        }
        self
    }

    /// The part of the reply that was read already; the rest of a stream is dropped.
    pub(crate) fn into_whole<S>(self) -> Reply<S> {
        match self {
            Self::Accepted => Reply::Accepted,
            Self::Message { body, sent_as } => Reply::Message { body, sent_as },
            Self::Events(events) => Reply::Events(events),
            Self::Stream(Relay::Events(mut events)) => Reply::Events(events.take_ready()),
            Self::Stream(_) => Reply::Accepted,
        }
    }

    /// The source for a reply on a stream that has begun.
    pub(crate) async fn into_source(self) -> Result<Source, UpstreamError> {
        let body = match self {
            Self::Stream(Relay::Events(events)) => return Ok(Source::Events(events)),
            Self::Stream(Relay::Frames(frames)) => whole(frames).await?,
            Self::Message { body, .. } => body,
            Self::Events(events) => return Ok(Source::events(events)),
            Self::Accepted => return Err(StreamError::NoAnswer.into()),
        };
        let is_message = is_batch(&body) || Message::from_server(body.clone()).is_ok();
        match is_message {
            true => Ok(Source::last(Event::of_message(body))),
            false => Err(StreamError::NoAnswer.into()),
        }
    }
}

/// Reads a body that arrives in pieces.
async fn whole(mut frames: Box<FrameRelay>) -> Result<Bytes, StreamError> {
    let mut body = BytesMut::new();
    while let Some(part) = poll_fn(|cx| frames.poll_next(cx)).await {
        body.extend_from_slice(&part?);
        if body.len() > MAX_MESSAGE {
            return Err(StreamError::TooLarge);
        }
    }
    Ok(body.freeze())
}
