//! Opens a GET stream at an upstream and reads the outcome.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::is_suspect;
use crate::upstream::event_source::EventSource;
use crate::upstream::link::HttpLink;
use crate::upstream::{Upstream, UpstreamError};

/// The outcome of a GET.
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

/// The status with which a stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NotListened(pub(crate) StatusCode);

impl Upstream {
    /// Opens a GET stream, after the event `last`.
    pub(in crate::upstream) async fn http_listen(
        &self,
        link: HttpLink<'_>,
        last: Option<&Bytes>,
    ) -> Result<Listening, UpstreamError> {
        // An id that is not a valid header value cannot have come from this server's stream.
        let last = last.and_then(|last| HeaderValue::from_maybe_shared(last.clone()).ok());
        let answer = self.get(link, last.as_ref()).await?;
        if answer.is_events() {
            return Ok(Listening::Events(EventSource::http(answer.body)));
        }
        let why = NotListened(answer.status);
        let server = self.config();
        let prints = &server.recovery.fingerprints;
        if !is_suspect(prints, answer.status) {
            answer.granted()?;
        }
        let may_deny_session = matches!(
            why.0,
            StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::GONE
        ) || is_suspect(prints, why.0);
        Ok(Listening::Refused {
            why,
            may_deny_session,
        })
    }
}

impl NotListened {
    /// Whether the server believes that the previous stream is still open.
    pub(crate) fn is_conflict(self) -> bool {
        self.0 == StatusCode::CONFLICT
    }

    /// Whether the server failed, rather than refused.
    pub(crate) fn is_failure(self) -> bool {
        self.0.is_server_error()
    }

    /// Whether a GET that was refused with this status may succeed later.
    pub(crate) fn may_pass(self) -> bool {
        self.0.is_client_error() && !self.is_conflict()
    }

    /// Whether the server says, or seems to say, that it has no such streams. `opens_streams`: it
    /// has opened one before, so it has a route for GET.
    pub(crate) fn has_none(self, opens_streams: bool) -> bool {
        // A server without a route for GET answers 404, like one that lost the session.
        let is_refused = self.0.is_success() || self.may_pass();
        self.0 == StatusCode::METHOD_NOT_ALLOWED || is_refused && !opens_streams
    }
}
