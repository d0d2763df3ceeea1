//! Opens a GET stream at an upstream and reads the outcome.

use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::fingerprint::is_suspect;
use crate::upstream::Upstream;
use crate::upstream::transports::error::{NotListened, UpstreamError};
use crate::upstream::transports::event_source::EventSource;
use crate::upstream::transports::link::HttpLink;
use crate::upstream::transports::outcome::Listening;

impl Upstream {
    /// Opens a GET stream, after the event `last`.
    pub(in crate::upstream::transports) async fn http_listen(
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
