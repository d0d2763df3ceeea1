//! An upstream's response on its way to the client, read only as fast as the client reads.

use std::task::{Context, Poll};

use bowline_wire::sse::Event;
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
pub(crate) use crate::exchange::stream::events::EventRelay;
pub(crate) use crate::exchange::stream::frames::FrameRelay;
use crate::upstream::StreamError;

/// A piece of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Event(Event),
    /// A part of a body that is not events.
    Part(Bytes),
}

/// A body that is passed on while it arrives.
#[derive(Debug)]
pub(crate) enum Relay {
    /// Events, rewritten one by one.
    Events(Box<EventRelay>),
    /// Anything else, frame by frame as it came.
    Frames(Box<FrameRelay>),
}

// === impl Piece ===

impl Piece {
    /// The event, if it is one.
    pub(crate) fn into_event(self) -> Option<Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::Part(_) => None,
        }
    }

    /// Its bytes in a body.
    pub(crate) fn into_bytes(self) -> Bytes {
        match self {
            Self::Event(event) => event.encoded(),
            Self::Part(part) => part,
        }
    }
}

// === impl Relay ===

impl Relay {
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, StreamError>>> {
        match self {
            Self::Events(events) => {
                let next = events.poll_next(cx);
                next.map(|next| next.map(|event| event.map(Piece::Event)))
            }
            Self::Frames(frames) => {
                let next = frames.poll_next(cx);
                next.map(|next| next.map(|part| part.map(Piece::Part)))
            }
        }
    }

    /// Whether dropping this would lose the response of a running request: it belongs to a request, and the
    /// upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        match self {
            Self::Events(events) => events.must_be_read_out(),
            Self::Frames(_) => true,
        }
    }

    /// Ends the response when its call times out.
    pub(crate) fn with_timeout(self, timeout: Option<CallTimeout>) -> Self {
        match self {
            Self::Events(events) => Self::Events(Box::new(events.with_timeout(timeout))),
            Self::Frames(frames) => Self::Frames(Box::new(frames.with_timeout(timeout))),
        }
    }
}
