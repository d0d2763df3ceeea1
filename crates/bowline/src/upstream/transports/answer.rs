//! An HTTP answer: its head, and its body still unread.

use std::time::Duration;

use bowline_egress::{UpstreamBody, read_limited};
use bowline_wire::id::UpstreamSessionId;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body::Body as _;

use super::error::{StreamError, UpstreamError};
use super::judge::is_about_credentials;
use super::limits::MAX_HELD_ANSWER;
use super::outcome::{SentAs, Whole};
use crate::config::Recovery;
use crate::upstream::policy::budget::errand;

/// How much of an unneeded body is read, and for how long.
pub(super) const MAX_READ_OUT: usize = 64 * 1024;
const READ_OUT_TIMEOUT: Duration = Duration::from_millis(100);

/// The head of an answer, and its body still unread.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: UpstreamBody,
    /// Whether the request named a session, so that a 404 means that the session is unknown.
    pub(super) named_session: bool,
    /// The body, if it was read already.
    pub(super) held: Option<WholeBody>,
}

/// A body that was read to its end.
#[derive(Debug, Clone)]
pub(super) struct WholeBody {
    pub(super) bytes: Bytes,
    /// Only the end of the connection said that this is all.
    pub(super) ended_with_connection: bool,
}

// === impl Answer ===

impl Answer {
    /// Whether the body is of this media type.
    pub(crate) fn is(&self, media: &str) -> bool {
        media::is(self.content_type(), media)
    }

    pub(crate) fn content_type(&self) -> Option<&HeaderValue> {
        self.headers.get(CONTENT_TYPE)
    }

    /// Reads the rest of a small body, so that the connection can be reused.
    pub(crate) async fn read_out(self) {
        if !self.body.is_end_stream() {
            let rest = read_limited(self.body, MAX_READ_OUT);
            drop(Box::pin(tokio::time::timeout(READ_OUT_TIMEOUT, rest)).await);
        }
    }

    /// Reads the whole body, which stays here.
    pub(super) async fn read(&mut self, recovery: &Recovery) -> Result<WholeBody, UpstreamError> {
        if let Some(held) = &self.held {
            return Ok(held.clone());
        }
        let ended_with_connection = self.body.ends_with_connection();
        let reading = read_limited(&mut self.body, MAX_HELD_ANSWER);
        let read = tokio::time::timeout(errand(recovery), reading).await;
        let held = WholeBody {
            bytes: read.map_err(|_| StreamError::CallTimeout)??,
            ended_with_connection,
        };
        self.held = Some(held.clone());
        Ok(held)
    }

    /// Whether it asks for credentials.
    pub(crate) fn has_challenge(&self) -> bool {
        self.headers.contains_key(WWW_AUTHENTICATE)
    }

    /// The same, unless the server refused who asks.
    pub(in crate::upstream) fn granted(self) -> Result<Self, UpstreamError> {
        match is_about_credentials(self.status) {
            true => Err(UpstreamError::Refused(self.status)),
            false => Ok(self),
        }
    }

    /// How it was sent over HTTP.
    pub(crate) fn sent_as(&self) -> SentAs {
        SentAs {
            status: self.status,
            content_type: self.content_type().cloned(),
            retry_after: None,
        }
    }

    /// Whether it is a stream of events.
    pub(crate) fn is_events(&self) -> bool {
        self.status == StatusCode::OK && self.is(media::EVENT_STREAM)
    }

    /// Whether the request named the upstream's session.
    pub(crate) fn named_session(&self) -> bool {
        self.named_session
    }

    /// 404 to a request that named the upstream's session: by the protocol, the session is gone.
    pub(crate) fn denies_session(&self) -> bool {
        self.named_session && self.status == StatusCode::NOT_FOUND
    }

    /// The session id that the server issued, if any. Two ids are an error: there is no telling which
    /// counts.
    pub(crate) fn issued_id(&self) -> Result<Option<UpstreamSessionId>, UpstreamError> {
        let mut ids = self.headers.get_all(header::SESSION_ID).iter();
        match (ids.next(), ids.next()) {
            (None, _) => Ok(None),
            (Some(id), None) => Ok(Some(UpstreamSessionId::issued(id)?)),
            (Some(_), Some(_)) => Err(UpstreamError::SeveralSessionIds),
        }
    }

    /// Reads the answer to its end.
    pub(crate) async fn whole(self) -> Result<Whole, UpstreamError> {
        let sent_as = self.sent_as();
        Ok(Whole {
            body: read_limited(self.body, MAX_HELD_ANSWER).await?,
            sent_as,
            may_deny_session: false,
        })
    }

    /// The delay that the server asks for (`Retry-After`), in seconds.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        let seconds = self.headers.get(RETRY_AFTER)?;
        let seconds = seconds.to_str().ok()?.parse().ok()?;
        Some(Duration::from_secs(seconds))
    }
}
