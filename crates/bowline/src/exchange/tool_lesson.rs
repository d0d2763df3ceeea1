//! Learns from responses which tools of a server are safe to repeat, and notices when the tools change.

use bowline_wire::batch;
use bowline_wire::message::Message;
use bytes::Bytes;

use crate::leg::Leg;
use crate::leg::rewrite::Rewrite;
use crate::session::Session;
use crate::upstream::Epoch;
use crate::upstream::MAX_BATCH;

/// What the response to a request says about tools.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ToolLesson {
    /// Nothing: the request was not `tools/list`.
    Nothing,
    /// It is a tools list, requested in this epoch. `None`: it can only revoke known hints.
    Listing(Option<Epoch>),
    /// The request is not known here, because the client resumes a stream.
    Unknown,
}

impl ToolLesson {
    /// The lesson of a request that is about to be sent on this leg.
    pub(crate) async fn of(session: &Session, leg: &Leg, request: &Message) -> Self {
        match request.method() {
            Some("tools/list") => Self::Listing(Box::pin(session.before_listing(leg)).await),
            _ => Self::Nothing,
        }
    }

    pub(crate) fn is_listing(self) -> bool {
        matches!(self, Self::Listing(_))
    }

    /// Whether the stream is the response to a request that was sent here.
    pub(crate) fn is_of_request(self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Whether the response can be a tools list.
    pub(crate) fn may_be_listing(self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// Learns from the response.
    pub(crate) fn take(self, session: &Session, leg: &Leg, answer: &Message) {
        match (self, answer.result()) {
            (Self::Nothing, _) | (_, None) => {}
            (Self::Listing(asked), Some(result)) => session.learn_tools(leg, asked, result),
            (Self::Unknown, Some(_)) => {
                if answer.result_member("tools").is_some() {
                    session.revoke_tools();
                }
            }
        }
    }

    /// The response is too large to parse, so known hints may be outdated and are dropped.
    pub(crate) fn miss(self, session: &Session) {
        if self.is_listing() {
            session.revoke_tools();
        }
    }

    /// Learns from a complete body: the response, or an array that contains it.
    pub(crate) fn take_whole(
        self,
        session: &Session,
        leg: &Leg,
        rewrite: impl FnOnce() -> Rewrite,
        body: &Bytes,
    ) {
        if !batch::is_batch(body) {
            if self.is_listing() {
                match Message::from_server(body.clone()) {
                    Ok(answer) => self.take(session, leg, &answer),
                    Err(_) => self.miss(session),
                }
            }
            return;
        }
        let rewrite = rewrite();
        for raw in batch::split(body, MAX_BATCH).unwrap_or_default() {
            match Message::from_server(raw) {
                Ok(message) if rewrite.is_answer(&message) => self.take(session, leg, &message),
                Ok(message) => note(session, &message),
                Err(_) => {}
            }
        }
    }
}

/// Learns from a message that the server sent on its own.
pub(crate) fn note(session: &Session, message: &Message) {
    if is_change(message) {
        session.revoke_tools();
    }
}

/// Whether a message says that the server's tools have changed.
pub(crate) fn is_change(message: &Message) -> bool {
    message.method() == Some("notifications/tools/list_changed")
}
