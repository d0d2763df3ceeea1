//! Requests of a probe: sent like any other, and answered with what the server said, unread and unjudged.

use bowline_egress::Sent;
use bowline_wire::media;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};

use super::asking::Asking;
use crate::upstream::Upstream;
use crate::upstream::transports::answer::Answer;
use crate::upstream::transports::error::UpstreamError;
use crate::upstream::transports::link::{Link, Route};

impl Upstream {
    /// Sends a request with these headers besides the configured ones. The message of a POST must be safe to
    /// repeat.
    pub(crate) async fn examine(
        &self,
        link: Link<'_>,
        method: Method,
        message: Option<Bytes>,
        headers: &HeaderMap,
    ) -> Result<Answer, UpstreamError> {
        let Route::Http(link) = link.safe().route(self)? else {
            return Err(UpstreamError::SessionLost);
        };
        let mut server = (*self.config()).clone();
        let added = headers.iter();
        server
            .headers
            .extend(added.map(|(name, value)| (name.clone(), value.clone())));
        let accept = match method {
            Method::POST => Some(media::BOTH),
            Method::GET => Some(media::EVENT_STREAM),
            _ => None,
        };
        let asking = Asking {
            method,
            accept: accept.map(HeaderValue::from_static),
            last_event_id: None,
            message: message.map(|message| (message, Sent::default())),
            landed: None,
            aside: None,
        };
        Box::pin(self.send(link, &server, &asking)).await?.granted()
    }
}
