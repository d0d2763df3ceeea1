//! Errors of messages to an upstream and of streams from it. Each transport's own are in a module below.

mod end;
mod forward;
mod http_sse;
mod live;
mod not_listened;
mod process;
mod proof;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{EgressError, ReadError, WireError};
use bowline_wire::batch::BadBatch;
use bowline_wire::id::BadUpstreamSessionId;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use thiserror::Error;

pub(crate) use self::end::End;
pub(in crate::upstream) use self::end::LastWords;
pub(crate) use self::forward::ForwardError;
pub(crate) use self::http_sse::SseError;
pub(crate) use self::live::LiveError;
pub(crate) use self::not_listened::NotListened;
pub(crate) use self::process::ProcessError;
use crate::oauth::{GrantError, SignInReason};
use crate::upstream::endpoints::Ailment;

/// The HTTP status that a server answered, for modules that only pass it on.
pub(crate) type Status = StatusCode;

/// Why one request to an upstream failed.
#[derive(Debug, Error)]
pub(crate) enum UpstreamError {
    #[error(transparent)]
    NoAnswer(#[from] EgressError),
    #[error("unavailable: {}", .0.reason)]
    Unavailable(Ailment),
    #[error("the server no longer knows the session")]
    SessionLost,
    #[error("the server answered {0}, which is configured as a sign of a lost session")]
    Fingerprint(StatusCode),
    #[error("the session could not be recovered: {0}")]
    NotRecovered(Arc<str>),
    #[error(
        "the load balancer before it is not sticky: new sessions were unknown to the replica that got their next message, several times in a row; have it send all requests of a session to the same replica (by a cookie, or by Mcp-Session-Id), or configure the replicas as `endpoints`. Over HTTP+SSE, see also that a proxy passes on the URL that the server's stream names"
    )]
    NotSticky,
    #[error("it is unknown whether the request ran, and it is not safe to repeat: {0}")]
    OutcomeUnknown(Arc<str>),
    #[error("the client cancelled the request")]
    Cancelled,
    #[error("the server answered {0}: it requires credentials that Bowline does not have")]
    Refused(StatusCode),
    /// The status over HTTP+SSE, and what streamable HTTP had been answered.
    #[error(
        "over streamable HTTP the server answered {1} to `initialize`; over HTTP+SSE it answered {0}: it requires credentials that Bowline does not have"
    )]
    RefusedOverSse(StatusCode, StatusCode),
    #[error("the caller must sign in to this server")]
    SignIn(Arc<SignInReason>),
    #[error("it is unknown whether the caller is signed in to this server: {0}")]
    Grant(#[from] GrantError),
    #[error(
        "the server answered {0}: only redirects within its own origin are followed; configure the address that it redirects to"
    )]
    Redirected(StatusCode),
    #[error(
        "the server answered {0} to a request that is not safe to repeat, and this status does not say whether it ran; configure the address that it redirects to"
    )]
    RedirectedAfter(StatusCode),
    #[error("the server redirected more than {0} times in a row")]
    TooManyRedirects(usize),
    #[error("the server answered {0} with something that is not MCP")]
    NotMcp(StatusCode),
    #[error(
        "the server's answer ({0}) is compressed ({1}), although Bowline asked for no compression: turn it off at the server"
    )]
    Compressed(StatusCode, Box<str>),
    #[error("the server refused the request with {0}")]
    Declined(Box<Declined>),
    #[error("the server's response does not match this request")]
    AnotherId,
    #[error("the server answered {0} to `initialize`")]
    NotOpened(StatusCode),
    #[error("the server answered {} to GET", .0.0)]
    NotListened(NotListened),
    #[error("no session could be opened in time: {0}")]
    NotOpenedInTime(Arc<str>),
    #[error("the server neither answered nor made progress within {0:?}")]
    CallTimeout(Duration),
    #[error("the server did not accept the message within {0:?}")]
    NotTaken(Duration),
    #[error("the server did not answer `initialize` within {0:?}")]
    InitializeTimeout(Duration),
    #[error("the server issued {0}")]
    BadSessionId(#[from] BadUpstreamSessionId),
    #[error("the server issued more than one session id")]
    SeveralSessionIds,
    #[error("the server's answer to `initialize` is not a JSON-RPC answer to it")]
    BadInitialize,
    #[error("the server's answer {0}")]
    BadBody(#[from] ReadError<WireError>),
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    Live(#[from] LiveError),
    #[error("{0}")]
    Forward(Box<ForwardError>),
    #[error("{0}")]
    OwnerUnreachable(Arc<str>),
    #[error(transparent)]
    HttpSse(#[from] SseError),
    #[error(
        "the server speaks neither transport: over streamable HTTP it answered {0} to `initialize`; over HTTP+SSE: {1}"
    )]
    NeitherTransport(StatusCode, Box<str>),
}

/// A refusal that is not the answer to the request.
#[derive(Debug)]
pub(crate) struct Declined {
    pub(crate) status: StatusCode,
    /// The refusal may mean the session that the request named, rather than the request.
    pub(crate) may_deny_session: bool,
    pub(crate) retry_after: Option<HeaderValue>,
    /// The server's response, if it is JSON-RPC and is passed on.
    pub(crate) body: Option<Bytes>,
    /// The beginning of what it says, on one line.
    pub(crate) text: Option<Box<str>>,
}

/// Why a stream broke off.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    #[error("the server's connection broke: {0}")]
    Broken(#[from] WireError),
    #[error("the server's stream ended in the middle of a message")]
    Cut,
    #[error("the server's answer is larger than 64 MiB, which is the most that is passed on")]
    TooLarge,
    #[error("the server sent {0}")]
    Batch(#[from] BadBatch),
    #[error("an id could not be sealed")]
    Seal,
    #[error("the server's stream ended without the answer")]
    NoAnswer,
    #[error("the server sent more than {0} bytes before its answer")]
    TooMuchBefore(usize),
    #[error("the server's response does not match this request")]
    AnotherId,
    #[error("the server's stream could not be opened")]
    NotOpened,
    #[error("the server's answer stalled for too long")]
    CallTimeout,
    #[error("the server's answer is configured as a sign of a lost session")]
    Fingerprint,
    #[error("the server's {what} has ended: {0}", what = .0.what())]
    Ended(Arc<End>),
    #[error("the server wrote an answer that cannot be read")]
    Unreadable,
    #[error("{0}")]
    Forward(Box<ForwardError>),
    #[error("the server did not take the request: {0}")]
    NotTaken(Arc<str>),
    /// The server was told so, and need not answer.
    #[error("the client has cancelled the request")]
    Cancelled,
}

// === impl Declined ===

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.text {
            Some(text) => write!(f, "{}: {text}", self.status),
            None => write!(f, "{}", self.status),
        }
    }
}

// === impl UpstreamError ===

impl From<Ailment> for UpstreamError {
    fn from(ailment: Ailment) -> Self {
        Self::Unavailable(ailment)
    }
}

impl UpstreamError {
    /// Whether the rest of a stream may be available later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Unavailable(_) | Self::NotMcp(_) => true,
            Self::NotListened(why) => why.0 == StatusCode::TOO_MANY_REQUESTS,
            _ => false,
        }
    }

    /// Whether there is no server to send anything to now.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::NoAnswer(error) => error.nobody_there(),
            Self::Unavailable(_) => true,
            Self::Process(error) => error.is_absence(),
            _ => false,
        }
    }

    /// Whether what was the session has ended: its process, or its stream.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Live(LiveError::Ended { .. }))
    }

    /// Whether a session is unknown that was opened a moment ago.
    pub(crate) fn is_stray(&self) -> bool {
        matches!(self, Self::HttpSse(SseError::Stray(_)))
    }

    /// A server that failed to open a stream.
    pub(crate) fn not_mcp(why: NotListened) -> Self {
        Self::NotMcp(why.0)
    }

    /// The answer of an endpoint that refuses streams, for a planted bug.
    #[cfg(feature = "planted")]
    pub(crate) fn deaf() -> Self {
        Self::NotMcp(StatusCode::GONE)
    }
}

// === impl StreamError ===

impl StreamError {
    /// What a client is told if this is for good.
    pub(crate) fn for_client(&self) -> UpstreamError {
        match self {
            Self::TooLarge => Self::TooLarge.into(),
            error => UpstreamError::OutcomeUnknown(error.to_string().into()),
        }
    }

    /// Whether a retry would always get the same error.
    pub(crate) fn is_for_good(&self) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::LargeEventAgain) {
            return false;
        }
        match self {
            Self::TooLarge | Self::Batch(_) | Self::Seal | Self::TooMuchBefore(_) => true,
            Self::Broken(_)
            | Self::Cut
            | Self::NoAnswer
            | Self::AnotherId
            | Self::NotOpened
            | Self::CallTimeout
            | Self::Fingerprint
            | Self::Ended(_)
            | Self::Unreadable
            | Self::Forward(_)
            | Self::NotTaken(_)
            | Self::Cancelled => false,
        }
    }
}
