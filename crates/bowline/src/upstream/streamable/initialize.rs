//! Sends `initialize` to an upstream and reads the outcome.

use std::time::Duration;

use bowline_egress::{Sent, read_limited};
use bowline_wire::id::UpstreamSessionId;
use bowline_wire::{header, media};
use bytes::Bytes;
use http::StatusCode;

use super::Answer;
use super::messages::retry_after;
use crate::upstream::conversation::Issued;
use crate::upstream::event_source::EventSource;
use crate::upstream::judge::is_about_the_way;
use crate::upstream::link::HttpLink;
use crate::upstream::{MAX_HELD_ANSWER, Upstream, UpstreamError, Whole};

/// The outcome of `initialize`.
#[derive(Debug)]
pub(crate) enum Initialized {
    Answered {
        /// The session id that the server issued, if any.
        issued: Result<Issued, UpstreamError>,
        answer: InitializeAnswer,
    },
    Declined(Declination),
}

/// The answer, still unread.
#[derive(Debug)]
pub(crate) enum InitializeAnswer {
    Events(EventSource),
    /// One message that was read already.
    Held(Whole),
    Message(Answer),
}

/// An answer that is not 200: the server's own, for the client, or that of an intermediary.
#[derive(Debug)]
pub(crate) struct Declination {
    status: StatusCode,
    asked_for: Option<Duration>,
    body: Declined,
}

/// The body of an answer that is not 200.
#[derive(Debug)]
enum Declined {
    Unread(Answer),
    Read(Option<Whole>),
}

impl Upstream {
    /// Sends an `initialize`.
    pub(in crate::upstream) async fn http_initialize(
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

// === impl Answer ===

impl Answer {
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
}

// === impl Declination ===

impl Declination {
    pub(in crate::upstream) fn new(answer: Answer) -> Self {
        Self {
            status: answer.status,
            asked_for: retry_after(&answer.headers),
            body: Declined::Unread(answer),
        }
    }

    /// The answer to a GET: its body is no answer to `initialize`.
    pub(in crate::upstream) fn of_get(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            asked_for: retry_after(&answer.headers),
            body: Declined::Read(None),
        }
    }

    pub(in crate::upstream) fn status(&self) -> StatusCode {
        self.status
    }

    /// The same with its body read.
    pub(in crate::upstream) async fn held(self) -> Self {
        let (status, asked_for) = (self.status, self.asked_for);
        let body = Declined::Read(self.read().await);
        Self {
            status,
            asked_for,
            body,
        }
    }

    /// The body, if it was read and is JSON.
    pub(in crate::upstream) fn json(&self) -> Option<&Bytes> {
        match &self.body {
            Declined::Read(Some(whole)) => Some(&whole.body),
            Declined::Read(None) | Declined::Unread(_) => None,
        }
    }

    /// The error for the client if the server's own answer cannot be passed on.
    pub(crate) fn error(&self) -> UpstreamError {
        UpstreamError::NotOpened(self.status)
    }

    /// How long the server asks clients to wait (`Retry-After`).
    pub(crate) fn asked_for(&self) -> Option<Duration> {
        self.asked_for
    }

    /// Whether the status says that the server was not reached.
    pub(crate) fn is_about_the_way(&self) -> bool {
        is_about_the_way(self.status)
    }

    /// The server's answer, if it is JSON.
    pub(crate) async fn read(self) -> Option<Whole> {
        match self.body {
            Declined::Unread(answer) if answer.is(media::JSON) => answer.whole().await.ok(),
            Declined::Unread(_) => None,
            Declined::Read(whole) => whole,
        }
    }
}
