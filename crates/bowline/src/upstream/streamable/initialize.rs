//! `initialize` at an upstream, and what came of it.

use std::time::Duration;

use bowline_egress::{Sent, UpstreamBody, read_limited};
use bowline_wire::id::UpstreamSessionId;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::Answer;
use super::messages::retry_after;
use crate::upstream::{Link, MAX_HELD_ANSWER, Upstream, UpstreamError, Whole};

/// What came of `initialize`.
#[derive(Debug)]
pub(crate) enum Initialized {
    Answered {
        /// The id that the server issued, if it did.
        issued: Result<Option<UpstreamSessionId>, UpstreamError>,
        answer: InitializeAnswer,
    },
    Declined(Declination),
}

/// The answer, still to be read.
#[derive(Debug)]
pub(crate) enum InitializeAnswer {
    Events(UpstreamBody),
    Message(Answer),
}

/// Any other answer than a good one: the server's own, for the client, or that of somebody on the way.
#[derive(Debug)]
pub(crate) struct Declination(Answer);

impl Upstream {
    /// Sends an `initialize`.
    pub(in crate::upstream) async fn http_initialize(
        &self,
        link: Link<'_>,
        message: Bytes,
        sent: Sent,
    ) -> Result<Initialized, UpstreamError> {
        let answer = self.post(link, &self.config(), message, sent).await?;
        if answer.status != StatusCode::OK {
            return Ok(Initialized::Declined(Declination(answer)));
        }
        let issued = issued_id(&answer.headers);
        let answer = match answer.is_events() {
            true => InitializeAnswer::Events(answer.body),
            false => InitializeAnswer::Message(answer),
        };
        Ok(Initialized::Answered { issued, answer })
    }
}

/// The id that the server issued, if it did; two of them would be two servers' word for one thing.
fn issued_id(headers: &HeaderMap) -> Result<Option<UpstreamSessionId>, UpstreamError> {
    let mut ids = headers.get_all(header::SESSION_ID).iter();
    match (ids.next(), ids.next()) {
        (None, _) => Ok(None),
        (Some(id), None) => Ok(Some(UpstreamSessionId::issued(id)?)),
        (Some(_), Some(_)) => Err(UpstreamError::SeveralSessionIds),
    }
}

// === impl Answer ===

impl Answer {
    /// Reads the answer to its end.
    pub(crate) async fn whole(self) -> Result<Whole, UpstreamError> {
        let sent_as = self.sent_as();
        Ok(Whole {
            body: read_limited(self.body, MAX_HELD_ANSWER).await?,
            sent_as,
            may_deny_session: false,
        })
    }
}

// === impl Declination ===

impl Declination {
    /// What the client hears if nothing better can be said.
    pub(crate) fn error(&self) -> UpstreamError {
        UpstreamError::NotOpened(self.0.status)
    }

    /// How long the server asks to be left alone.
    pub(crate) fn asked_for(&self) -> Option<Duration> {
        retry_after(&self.0.headers)
    }

    /// Whether it says that the server was not reached.
    pub(crate) fn is_about_the_way(&self) -> bool {
        matches!(
            self.0.status,
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        )
    }

    /// What the server said, if a client can read it.
    pub(crate) async fn read(self) -> Option<Whole> {
        match self.0.is(media::JSON) {
            true => self.0.whole().await.ok(),
            false => None,
        }
    }
}
