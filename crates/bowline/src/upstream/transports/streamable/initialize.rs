//! Sends `initialize` to an upstream.

use bowline_egress::Sent;
use bytes::Bytes;
use http::StatusCode;

use crate::upstream::Upstream;
use crate::upstream::transports::conversation::Issued;
use crate::upstream::transports::error::UpstreamError;
use crate::upstream::transports::event_source::EventSource;
use crate::upstream::transports::link::HttpLink;
use crate::upstream::transports::opening::{Declination, InitializeAnswer, Initialized};

impl Upstream {
    /// Sends an `initialize`.
    pub(in crate::upstream::transports) async fn http_initialize(
        &self,
        link: HttpLink<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        let posted = self.post(link, &self.config(), message, sent).await?;
        let answer = posted.granted()?;
        if answer.status != StatusCode::OK {
            return Ok(Initialized::Declined(Declination::new(answer)));
        }
        let issued = answer.issued_id().map(Issued::SessionId);
        let answer = match answer.is_events() {
            true => InitializeAnswer::Events(EventSource::http(answer.body)),
            false => InitializeAnswer::Message(answer),
        };
        Ok(Initialized::Answered { issued, answer })
    }
}
