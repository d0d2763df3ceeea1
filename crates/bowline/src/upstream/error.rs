//! What can go wrong with a message to an upstream, and with a stream from it.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{EgressError, ReadError, WireError};
use bowline_wire::batch::BadBatch;
use bowline_wire::id::BadUpstreamSessionId;
use bowline_wire::sse::EventTooLarge;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use thiserror::Error;

use super::Ailment;
use super::streamable::NotListened;
use crate::oauth::{GrantError, SignInReason};

/// A status that a server answered, for whoever only passes it on.
pub(crate) type Status = StatusCode;

/// What went wrong with one request to an upstream.
#[derive(Debug, Error)]
pub(crate) enum UpstreamError {
    #[error(transparent)]
    NoAnswer(#[from] EgressError),
    #[error("unavailable: {}", .0.reason)]
    Unavailable(Ailment),
    #[error("the server no longer knows the session")]
    SessionLost,
    #[error("the server answered {0}, which for this server means that it lost the session")]
    Fingerprint(StatusCode),
    #[error("the session could not be recovered: {0}")]
    NotRecovered(Arc<str>),
    #[error("it is not known whether the request has run, and it may not run twice: {0}")]
    OutcomeUnknown(Arc<str>),
    #[error("the client has cancelled the request")]
    Cancelled,
    #[error("the server answered {0}: it wants credentials that Bowline does not have")]
    Refused(StatusCode),
    #[error("the caller has to sign in at this server")]
    SignIn(Arc<SignInReason>),
    #[error("whether the caller is signed in at this server is not known: {0}")]
    Grant(#[from] GrantError),
    #[error(
        "the server answered {0}: only redirects within its own origin are followed; configure the address that it redirects to"
    )]
    Redirected(StatusCode),
    #[error(
        "the server answered {0} to a request that may not run twice, and that does not say whether it ran; configure the address that it redirects to"
    )]
    RedirectedAfter(StatusCode),
    #[error("the server redirected more than {0} times in a row")]
    TooManyRedirects(usize),
    #[error("the server answered {0} with something that is not MCP")]
    NotMcp(StatusCode),
    #[error(
        "the server's answer ({0}) is compressed ({1}), although Bowline asks for answers that are not: turn compression off for it"
    )]
    Compressed(StatusCode, Box<str>),
    #[error("the server refused the request with {}", .0.status)]
    Declined(Box<Declined>),
    #[error("the server's answer is not one to this request")]
    AnotherId,
    #[error("the server answered {0} to `initialize`")]
    NotOpened(StatusCode),
    #[error("the server answered {} to GET", .0.0)]
    NotListened(NotListened),
    #[error("no session could be opened in time: {0}")]
    NotOpenedInTime(Arc<str>),
    #[error("the server neither answered nor made progress within {0:?}")]
    CallTimeout(Duration),
    #[error("the server did not take the message within {0:?}")]
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
}

/// A refusal by status that is not the answer to the request.
#[derive(Debug)]
pub(crate) struct Declined {
    pub(crate) status: StatusCode,
    /// It may be meant for the session that the request named, rather than for the request.
    pub(crate) may_deny_session: bool,
    pub(crate) retry_after: Option<HeaderValue>,
    /// What the server said, where it is JSON-RPC.
    pub(crate) body: Option<Bytes>,
}

/// Why a stream broke off.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    #[error("the server's connection broke: {0}")]
    Broken(#[from] WireError),
    #[error("the server's stream ended within an event")]
    Cut,
    #[error("the server sent {0}")]
    EventTooLarge(#[from] EventTooLarge),
    #[error("the server sent {0}")]
    Batch(#[from] BadBatch),
    #[error("an id could not be sealed")]
    Seal,
    #[error("the server's stream ended without the answer")]
    NoAnswer,
    #[error("the server sent more than {0} bytes before its answer")]
    TooMuchBefore(usize),
    #[error("the server's answer is not one to this request")]
    AnotherId,
    #[error("the server's stream could not be opened")]
    NotOpened,
    #[error("the server's answer did not go on in time")]
    CallTimeout,
    #[error("the server's answer is one that for this server means a lost session")]
    Fingerprint,
}

// === impl UpstreamError ===

impl UpstreamError {
    /// Whether the rest of a stream may be had a little later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::NoAnswer(_) | Self::Unavailable(_) | Self::NotMcp(_) => true,
            Self::NotListened(why) => why.0 == StatusCode::TOO_MANY_REQUESTS,
            _ => false,
        }
    }

    /// A server that failed to open a stream.
    pub(crate) fn not_mcp(why: NotListened) -> Self {
        Self::NotMcp(why.0)
    }

    /// What an endpoint says that is deaf to what it still has, for a planted bug.
    #[cfg(feature = "planted")]
    pub(crate) fn deaf() -> Self {
        Self::NotMcp(StatusCode::GONE)
    }
}

// === impl StreamError ===

impl StreamError {
    /// Whether the same would come again, however often the server is asked.
    pub(crate) fn is_for_good(&self) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::LargeEventAgain) {
            return false;
        }
        match self {
            Self::EventTooLarge(_) | Self::Batch(_) | Self::Seal | Self::TooMuchBefore(_) => true,
            Self::Broken(_)
            | Self::Cut
            | Self::NoAnswer
            | Self::AnotherId
            | Self::NotOpened
            | Self::CallTimeout
            | Self::Fingerprint => false,
        }
    }
}
