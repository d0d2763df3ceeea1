//! What came of a message that was sent: the transport's word, in which no status is left. A failure says
//! whether the message ran and whether the session is lost ([`UpstreamError`]).

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::UpstreamError;
use super::streamable::Passing;
use bowline_egress::UpstreamBody;

/// The largest answer that is held whole where it must be looked into.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// JSON answers up to this are held whole before any of it is passed on.
pub(crate) const SMALL_ANSWER: usize = 64 * 1024;

/// What answers a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One message, or an array of them, held whole.
    Message(Whole),
    /// Events, of which nothing was read.
    Events(UpstreamBody),
    /// One message that is too large to be held, and what was read of it.
    Frames(Frames),
}

/// An answer that is held whole.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) body: Bytes,
    pub(crate) sent_as: SentAs,
    /// It came as a lost session's does: only asking can tell.
    pub(crate) may_deny_session: bool,
}

/// An answer that is passed on while it arrives.
#[derive(Debug)]
pub(crate) struct Frames {
    pub(crate) passing: Passing,
    pub(crate) body: UpstreamBody,
    pub(crate) sent_as: SentAs,
}

/// How an answer was sent over HTTP, for a front that speaks it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SentAs {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<HeaderValue>,
}

/// How an answer is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// How much of it is held before any of it is passed on.
    pub(crate) limit: usize,
    /// The client's own id (JSON text), if the request was sent under another one.
    pub(crate) own: Option<&'a str>,
}

/// What a ping showed.
#[derive(Debug)]
pub(crate) enum Pulse {
    Alive,
    Lost,
    /// It did not get there, or nobody answered well: for this reason, and with this wish to be
    /// left alone for a time.
    Unproven(Arc<str>, Option<Duration>),
}

/// A server took something of our own badly while its session was restored.
#[derive(Debug)]
pub(crate) struct NotSaid {
    pub(crate) why: String,
    pub(crate) asked_for: Option<Duration>,
}

// === impl SentAs ===

impl SentAs {
    /// As Bowline itself says something.
    pub(crate) fn own() -> Self {
        Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::JSON)),
        }
    }

    /// Whether it came with a good status.
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_success()
    }

    /// What it is where there is no way to pass it on.
    pub(crate) fn not_mcp(&self) -> UpstreamError {
        UpstreamError::NotMcp(self.status)
    }

    /// As events are sent.
    pub(crate) fn events() -> Self {
        Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
        }
    }
}
