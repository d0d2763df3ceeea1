//! The outcome of a sent message, as its transport reports it, without HTTP statuses. A failure
//! says whether the message ran and whether the session is lost ([`UpstreamError`]).

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use bowline_wire::message::RawId;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::error::{LiveError, NotListened, StreamError, UpstreamError};
use super::event_source::EventSource;
use super::live::{Beginning, Incoming, Over};
use super::passing::Passing;
use crate::proof::SessionState;
use bowline_egress::UpstreamBody;

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One message, or an array of messages, buffered whole.
    Message(Whole),
    /// A stream of events, still unread.
    Events(EventSource),
    /// One message that is too large to buffer, with what has arrived of it.
    Frames(Frames),
}

/// An answer that is buffered whole.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) body: Bytes,
    pub(crate) sent_as: SentAs,
    /// Servers that have lost a session also answer like this: only a ping can tell.
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
    /// `Retry-After` of an answer with an error status. It travels, and means nothing here.
    pub(crate) retry_after: Option<Box<HeaderValue>>,
}

/// How an answer is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading<'a> {
    /// How much is buffered before any byte is passed on.
    pub(crate) limit: usize,
    /// The client's own id, if the request was sent under another one.
    pub(crate) own: Option<RawId<'a>>,
}

/// The outcome of opening a stream.
#[derive(Debug)]
pub(crate) enum Listening {
    Events(EventSource),
    /// It was not opened. If `may_deny_session`, the session may be lost: servers also answer like
    /// this then.
    Refused {
        why: NotListened,
        may_deny_session: bool,
    },
}

/// The result of a ping.
#[derive(Debug)]
pub(crate) enum Pulse {
    Alive,
    /// The upstream says that it does not know the session.
    Lost,
    /// It refuses the ping. So do servers that know no pings: only after another refusal is the session lost.
    Refused,
    /// Only this other gateway could tell.
    Elsewhere(Arc<str>),
    /// The gateway that could tell does not answer, for this reason.
    OwnerUnreachable(Arc<str>),
    /// The ping was not delivered or not answered properly, for this reason. The server may have
    /// asked for a delay (`Retry-After`).
    Unproven(Arc<str>, Option<Duration>),
}

/// A server rejected a message of Bowline's own while its session was restored.
#[derive(Debug)]
pub(crate) struct NotSaid {
    pub(crate) why: String,
    pub(crate) asked_for: Option<Duration>,
    /// It does not know the session, which it opened a moment ago.
    pub(crate) denies_session: bool,
}

// === impl Outcome ===

impl Outcome {
    /// What answers a request on a live channel: one message if that comes first, otherwise a stream.
    pub(super) async fn of_live(incoming: Incoming) -> Result<Self, UpstreamError> {
        match incoming.begin().await {
            Beginning::Answer(body) => Ok(Self::Message(Whole::own(body))),
            Beginning::Other => Ok(Self::Events(EventSource::Live(incoming))),
            Beginning::Over(Over::Ended(end)) => Err(LiveError::Ended {
                end,
                was_written: true,
            }
            .into()),
            Beginning::Over(Over::Unreadable) => Err(LiveError::Unreadable.into()),
            Beginning::Over(Over::TooLarge) => Err(StreamError::TooLarge.into()),
            Beginning::Over(Over::NotTaken(why)) => Err(StreamError::NotTaken(why).into()),
            Beginning::Over(Over::Cancelled | Over::Closed | Over::Answered) => {
                Err(UpstreamError::Cancelled)
            }
        }
    }
}

// === impl Whole ===

impl Whole {
    /// An answer that no HTTP response brought.
    pub(super) fn own(body: Bytes) -> Self {
        Self {
            body,
            sent_as: SentAs::own(),
            may_deny_session: false,
        }
    }
}

// === impl Pulse ===

impl Pulse {
    /// What the answer to a ping says about a session that lives in one gateway.
    pub(super) fn of_live<T>(asked: Result<T, UpstreamError>) -> Self {
        match asked {
            Ok(_) => Self::Alive,
            Err(UpstreamError::Live(LiveError::Elsewhere(owner))) => Self::Elsewhere(owner),
            Err(error) => match error.proof().session {
                SessionState::Lost => Self::Lost,
                SessionState::Alive => Self::Alive,
                SessionState::Unproven => Self::Unproven(error.to_string().into(), None),
            },
        }
    }

    /// Whether the session is lost, if there was a reason to ask.
    pub(crate) fn confirms_loss(&self) -> bool {
        matches!(self, Self::Lost | Self::Refused)
    }
}

// === impl SentAs ===

impl SentAs {
    /// For messages of Bowline's own.
    pub(crate) fn own() -> Self {
        Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::JSON)),
            retry_after: None,
        }
    }

    /// Whether it has this media type.
    pub(crate) fn is(&self, media: &str) -> bool {
        media::is(self.content_type.as_ref(), media)
    }

    /// Whether the status is a success.
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_success()
    }

    /// The error for an answer that cannot be passed on.
    pub(crate) fn not_mcp(&self) -> UpstreamError {
        UpstreamError::NotMcp(self.status)
    }

    /// For streams of events.
    pub(crate) fn events() -> Self {
        Self {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
            retry_after: None,
        }
    }
}
