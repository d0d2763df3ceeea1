//! The outcome of `initialize`, as its transport reports it.

use std::time::Duration;

use bowline_wire::media;
use bowline_wire::message::{Message, echoes_id};
use bytes::Bytes;
use http::StatusCode;

use super::answer::Answer;
use super::conversation::Issued;
use super::error::UpstreamError;
use super::event_source::EventSource;
use super::judge::is_about_the_way;
use super::outcome::Whole;

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

// === impl Declination ===

impl Declination {
    pub(in crate::upstream) fn new(answer: Answer) -> Self {
        Self {
            status: answer.status,
            asked_for: answer.retry_after(),
            body: Declined::Unread(answer),
        }
    }

    /// The answer to a GET: its body is no answer to `initialize`.
    pub(in crate::upstream) fn of_get(answer: &Answer) -> Self {
        Self {
            status: answer.status,
            asked_for: answer.retry_after(),
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

    /// Whether it was read and is the server's answer to this request.
    pub(in crate::upstream) fn answers(&self, request: &Bytes) -> bool {
        let request = Message::parse(request.clone());
        let id = request.as_ref().ok().and_then(Message::id);
        let body = self.json();
        body.zip(id).is_some_and(|(body, id)| echoes_id(body, id))
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
