//! What answers teach of a server's tools: which of them may run twice, or that they are others now.

use bowline_wire::batch;
use bowline_wire::message::Message;
use bytes::Bytes;

use crate::leg::Leg;
use crate::leg::rewrite::Rewrite;
use crate::session::Session;
use crate::upstream::Epoch;
use crate::upstream::MAX_BATCH;

/// What the answer to a request teaches.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ToolLesson {
    /// Nothing: no listing was asked for.
    Nothing,
    /// It is a listing, asked for in this epoch; `None` if it can only take back what is known.
    Listing(Option<Epoch>),
    /// What was asked is not known here: the client resumes a stream.
    Unknown,
}

impl ToolLesson {
    /// What the answer to a request will teach that is about to be sent on this leg.
    pub(crate) async fn of(session: &Session, leg: &Leg, request: &Message) -> Self {
        match request.method() {
            Some("tools/list") => Self::Listing(Box::pin(session.before_listing(leg)).await),
            _ => Self::Nothing,
        }
    }

    pub(crate) fn is_listing(self) -> bool {
        matches!(self, Self::Listing(_))
    }

    /// Takes the answer.
    pub(crate) fn take(self, session: &Session, answer: &Message) {
        match (self, answer.result()) {
            (Self::Nothing, _) | (_, None) => {}
            (Self::Listing(asked), Some(result)) => session.learn_tools(asked, result),
            (Self::Unknown, Some(_)) => {
                if answer.result_member("tools").is_some() {
                    session.forget_tools();
                }
            }
        }
    }

    /// The answer is too large to look into: what it takes back is not known.
    pub(crate) fn miss(self, session: &Session) {
        if self.is_listing() {
            session.forget_tools();
        }
    }

    /// Takes a body that is held whole: the answer, or an array with the answer in it.
    pub(crate) fn take_whole(
        self,
        session: &Session,
        rewrite: impl FnOnce() -> Rewrite,
        body: &Bytes,
    ) {
        if !batch::is_batch(body) {
            if self.is_listing() {
                match Message::from_server(body.clone()) {
                    Ok(answer) => self.take(session, &answer),
                    Err(_) => self.miss(session),
                }
            }
            return;
        }
        let rewrite = rewrite();
        for raw in batch::split(body, MAX_BATCH).unwrap_or_default() {
            match Message::from_server(raw) {
                Ok(message) if rewrite.is_answer(&message) => self.take(session, &message),
                Ok(message) => note(session, &message),
                Err(_) => {}
            }
        }
    }
}

/// Takes what a server says by itself.
pub(crate) fn note(session: &Session, message: &Message) {
    if is_change(message) {
        session.forget_tools();
    }
}

/// Whether a message says that the server's tools are others now.
pub(crate) fn is_change(message: &Message) -> bool {
    message.method() == Some("notifications/tools/list_changed")
}
