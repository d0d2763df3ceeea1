//! What can go wrong when a session over HTTP+SSE is opened.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use thiserror::Error;

use crate::share::ShareOwner;

/// Why no session could be opened over HTTP+SSE.
#[derive(Debug, Error)]
pub(crate) enum SseError {
    #[error("the server answered {0} to GET with something that is not an event stream")]
    NotAStream(StatusCode),
    #[error("too many streams ([limits] streams); retry later")]
    TooMany(ShareOwner),
    #[error("the server's stream had no `endpoint` event within {0:?}")]
    NoEndpoint(Duration),
    #[error("the server's stream ended before its `endpoint` event: {0}")]
    EndedEarly(Arc<str>),
    #[error("the server's `endpoint` event is not a URL")]
    BadEndpoint,
    /// The origin alone: the rest may have a secret in it.
    #[error(
        "the server's `endpoint` event names another origin ({0}): messages go only to the server's own"
    )]
    OtherOrigin(Box<str>),
    #[error("the server answered {0} to the first message for a stream that it had just opened")]
    Stray(StatusCode),
}

impl SseError {
    /// Whether a retry may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::NoEndpoint(_) | Self::EndedEarly(_) | Self::Stray(_)
        )
    }
}
