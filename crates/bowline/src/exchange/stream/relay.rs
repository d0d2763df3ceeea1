//! An upstream's response on its way to the client, read only as fast as the client reads.

use std::task::{Context, Poll};

use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
pub(crate) use crate::exchange::stream::events::EventRelay;
pub(crate) use crate::exchange::stream::frames::FrameRelay;
use crate::upstream::StreamError;

/// A body that is passed on while it arrives.
#[derive(Debug)]
pub(crate) enum Relay {
    /// Events, rewritten one by one.
    Events(Box<EventRelay>),
    /// Anything else, frame by frame as it came.
    Frames(Box<FrameRelay>),
}

// === impl Relay ===

impl Relay {
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        match self {
            Self::Events(events) => events.poll_next(cx),
            Self::Frames(frames) => frames.poll_next(cx),
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
