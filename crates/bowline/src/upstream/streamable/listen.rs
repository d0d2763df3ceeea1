//! The stream of a GET, opened at an upstream: what came of asking for it.

use bowline_egress::UpstreamBody;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::is_suspect;
use crate::upstream::{Link, Upstream, UpstreamError};

/// What came of asking for a stream.
#[derive(Debug)]
pub(crate) enum Listening {
    Events(UpstreamBody),
    /// It is not opened. A session that is lost would be told like this, too, if `may_deny_session`.
    Refused {
        why: NotListened,
        may_deny_session: bool,
    },
}

/// The status with which a stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotListened(pub(crate) StatusCode);

impl Upstream {
    /// Asks for the stream of a GET, after the event `last`.
    pub(in crate::upstream) async fn http_listen(
        &self,
        link: Link<'_>,
        last: Option<&Bytes>,
    ) -> Result<Listening, UpstreamError> {
        // An id that is no header's value was never sent as one.
        let last = last.and_then(|last| HeaderValue::from_maybe_shared(last.clone()).ok());
        let answer = self.get(link, last.as_ref()).await?;
        if answer.is_events() {
            return Ok(Listening::Events(answer.body));
        }
        let why = NotListened(answer.status);
        let prints = &self.config().recovery.fingerprints;
        let may_deny_session = matches!(
            answer.status,
            StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::GONE
        ) || is_suspect(prints, answer.status);
        Ok(Listening::Refused {
            why,
            may_deny_session,
        })
    }
}

impl NotListened {
    /// Whether the last stream has not ended, as far as the server knows.
    pub(crate) fn is_conflict(self) -> bool {
        self.0 == StatusCode::CONFLICT
    }

    /// Whether the server failed, rather than refused.
    pub(crate) fn is_failure(self) -> bool {
        self.0.is_server_error()
    }

    /// Whether a GET that was refused with this may be let in later.
    pub(crate) fn may_pass(self) -> bool {
        self.0.is_client_error() && !self.is_conflict()
    }

    /// Whether the server says, or seems to say, that it has no such streams; `opens_streams`: it has opened one
    /// before, so that it has a route for them.
    pub(crate) fn has_none(self, opens_streams: bool) -> bool {
        // A server without a route for GET says 404 as one does that lost the session.
        let is_refused = self.0.is_success() || self.may_pass();
        self.0 == StatusCode::METHOD_NOT_ALLOWED || is_refused && !opens_streams
    }
}
