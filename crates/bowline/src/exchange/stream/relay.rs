//! An upstream's response on its way to the client, read only as fast as the client reads.

use bowline_wire::sse::Event;
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
pub(crate) use crate::exchange::stream::events::EventRelay;
pub(crate) use crate::exchange::stream::frames::FrameRelay;

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
    /// Ends the response when its call times out.
    pub(crate) fn set_timeout(&mut self, timeout: Option<CallTimeout>) {
        match self {
            Self::Events(events) => events.set_timeout(timeout),
            Self::Frames(frames) => frames.set_timeout(timeout),
        }
    }
}
