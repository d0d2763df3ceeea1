//! Events on their way to the client: the only places where bytes change.
//!
//! An event's id becomes a mark (an empty one stays empty). So does the id of a server's request,
//! also where the server cancels it, and so does the progress token of a request to the client of several servers.
//! The answer to a repeated request gets the client's own id back, and its progress the client's own token. So does the
//! progress of every request of a client of several servers, and no other progress passes to it. A batch
//! is split, so that none of its messages is shown without its mark. Keys that are
//! reserved for Bowline are removed, and fields that some readers would take for several lines. The client of several
//! servers is told whose each message is. Everything else passes unchanged.

use bowline_wire::batch::{self, BadBatch};
use bowline_wire::members::Members;
use bowline_wire::message::{Kind, Message, RawId, RawIdBuf, Span};
use bowline_wire::names::reads_as;
use bowline_wire::sse::Event;
use bytes::Bytes;

use super::Generation;
use crate::leg::marks::{EventMark, Repeated, Seal, StreamOrigin};
use crate::upstream::MAX_BATCH;
use crate::upstream::reserved::Reserved;

const PROGRESS: &str = "notifications/progress";

/// The content of an event's data.
#[derive(Debug)]
pub(crate) enum Content {
    Message(Message),
    /// The members of a batch; at least one.
    Batch(Vec<Bytes>),
    /// Anything else: the data unchanged, if there is any.
    Other(Bytes),
}

/// Rewrites the events of one stream.
#[derive(Debug)]
pub(crate) struct Rewrite {
    seal: Seal,
    leg: Generation,
    origin: StreamOrigin,
    reserved: Reserved,
}

impl Rewrite {
    pub(crate) fn new(
        seal: Seal,
        leg: Generation,
        origin: StreamOrigin,
        reserved: Reserved,
    ) -> Self {
        Self {
            seal,
            reserved: match leg.is_of_member() {
                true => reserved.of_union(),
                false => reserved,
            },
            leg,
            origin,
        }
    }

    /// The part of an event's content that the client may see; `None` if it may see nothing.
    pub(crate) fn admitted(&self, event: &Event, content: Content) -> Option<Content> {
        match content {
            Content::Message(message) => self.reserved.cleared(message).map(Content::Message),
            Content::Batch(members) => {
                let members = self.reserved.cleared_batch(members);
                (!members.is_empty()).then_some(Content::Batch(members))
            }
            Content::Other(data) => {
                let is_shown = self.reserved.admits(&data) && self.reserved.admits(event.raw());
                is_shown.then_some(Content::Other(data))
            }
        }
    }

    /// The members of a batch as the client may see them.
    pub(crate) fn members(&self, members: Vec<Bytes>) -> Option<Vec<Bytes>> {
        let members = self.reserved.cleared_batch(members);
        members.iter().map(|raw| self.member(raw)).collect()
    }

    /// Whether a message is the answer that the stream was opened for.
    pub(crate) fn is_answer(&self, message: &Message) -> bool {
        match &self.origin {
            StreamOrigin::Standalone => false,
            StreamOrigin::Request(id) => {
                message.answers(id.as_id()) || self.answers_repeat(message, id)
            }
        }
    }

    /// Whether a message is the answer to a repeat of the request with this id.
    fn answers_repeat(&self, message: &Message, own: &RawIdBuf) -> bool {
        let stands_for = |mark| self.seal.open_repeat(Repeated::Id, self.leg.leg, mark);
        message.kind() == Kind::Response && message.id().and_then(stands_for).as_ref() == Some(own)
    }

    /// The answer to a repeat under the client's own id.
    fn given_back(&self, answer: &Message) -> Option<Bytes> {
        let StreamOrigin::Request(own) = &self.origin else {
            return None;
        };
        // The client's own id may look like anything.
        if answer.answers(own.as_id()) || !self.answers_repeat(answer, own) {
            return None;
        }
        Some(answer.splice(answer.id_span()?, own.as_str()))
    }

    /// The progress of a repeat, or of a member's request, under the client's own token.
    fn token_given_back(&self, message: &Message) -> Option<Bytes> {
        if message.method() != Some(PROGRESS) {
            return None;
        }
        let span = message.param("progressToken")?;
        let token = RawId::new(message.text(span));
        let own = match self.leg.is_of_member() {
            true => self.seal.open_member_token(self.leg, token)?.1,
            false => {
                let (what, leg) = (Repeated::Token, self.leg.leg);
                self.seal.open_repeat(what, leg, token)?
            }
        };
        Some(message.splice(span, own.as_str()))
    }

    /// Whether a client of several servers could take a message for the progress of a request.
    pub(crate) fn is_member_progress(&self, message: &Message) -> bool {
        let is_named = |method| reads_as(method, PROGRESS);
        self.leg.is_of_member() && message.method().is_some_and(is_named)
    }

    /// The request of which a member tells the progress: the one that it was sent with this token.
    pub(crate) fn progressing(&self, message: &Message) -> Option<RawIdBuf> {
        let params = Members::of(message.text(message.params_span()?))?;
        match &params.named("progressToken")[..] {
            [("progressToken", token)] => {
                let token = RawId::new(token.get());
                Some(self.seal.open_member_token(self.leg, token)?.0)
            }
            _ => None,
        }
    }

    /// Whether a message is of a request other than the one that the stream was opened for: its answer, or a member's
    /// progress.
    pub(crate) fn is_anothers(&self, message: &Message) -> bool {
        if self.is_member_progress(message) {
            let request = self.progressing(message).map(StreamOrigin::Request);
            return request.as_ref() != Some(&self.origin);
        }
        let is_addressed = message.kind() == Kind::Response && message.id().is_some();
        is_addressed && !self.is_answer(message)
    }

    /// The stream that this rewrites.
    pub(crate) fn origin(&self) -> &StreamOrigin {
        &self.origin
    }

    /// The event as the client may see it; `None` if it cannot be shown. Of a batch, this is its last member, and
    /// those before it are added to `before`.
    pub(crate) fn event(
        &self,
        mut event: Event,
        content: &Content,
        before: &mut impl Extend<Event>,
    ) -> Option<Event> {
        if let Some(id) = event.id().filter(|id| !id.is_empty()) {
            let mark = self.seal.event(&EventMark {
                leg: self.leg,
                origin: self.origin.clone(),
                id: id.into(),
            })?;
            event = event.with_id(mark);
        }
        let data = match content {
            Content::Message(message) => match self.message(message)? {
                None if event.has_data(message.raw()) => return Some(event),
                None => message.raw().clone(),
                Some(marked) => marked,
            },
            Content::Batch(members) => {
                let members: Option<Vec<_>> = members.iter().map(|raw| self.member(raw)).collect();
                let mut events = event.split(members?);
                let last = events.pop();
                before.extend(events);
                return last;
            }
            Content::Other(_) => return Some(event),
        };
        Some(event.with_data(data))
    }

    /// A member of a batch as the client may see it.
    fn member(&self, raw: &Bytes) -> Option<Bytes> {
        match Message::from_server(raw.clone()) {
            Ok(message) => Some(self.message(&message)?.unwrap_or_else(|| raw.clone())),
            Err(_) => Some(raw.clone()),
        }
    }

    /// The message with its mark, or `Some(None)` if it needs none.
    fn message(&self, message: &Message) -> Option<Option<Bytes>> {
        if message.kind() == Kind::Response {
            return Some(self.given_back(message));
        }
        let Some(span) = marked_id(message) else {
            return Some(self.token_given_back(message));
        };
        let mark = self.sealed(message, span)?;
        let marked = message.splice(span, mark.as_str());
        match self.progress_token(message) {
            None => Some(Some(marked)),
            // Its place has moved with the id.
            Some(_) => {
                let marked = Message::from_server(marked).ok()?;
                let span = self.progress_token(&marked)?;
                let mark = self.sealed(&marked, span)?;
                Some(Some(marked.splice(span, mark.as_str())))
            }
        }
    }

    /// The progress token of a server's request that must become a mark: where a client has several servers, it
    /// says whose request makes progress.
    fn progress_token(&self, message: &Message) -> Option<Span> {
        let is_needed = self.leg.is_of_member() && message.kind() == Kind::Request;
        is_needed.then(|| message.progress_token())?
    }

    fn sealed(&self, message: &Message, span: Span) -> Option<RawIdBuf> {
        self.seal.request(self.leg, RawId::new(message.text(span)))
    }

    /// The mark that a message carries when it is shown.
    pub(crate) fn mark(&self, message: &Message) -> Option<RawIdBuf> {
        let id = RawId::new(message.text(marked_id(message)?));
        self.seal.request(self.leg, id)
    }
}

/// The id that must become a mark: the id of a server's request, also in the server's cancellation
/// of it.
fn marked_id(message: &Message) -> Option<Span> {
    match message.kind() {
        Kind::Request => message.id_span(),
        Kind::Notification => message.cancelled_request(),
        Kind::Response => None,
    }
}

// === impl Content ===

impl Content {
    /// Parses an event's data. Data that cannot be parsed is not refused, because the client may
    /// understand it. A batch that is too large to split is refused.
    pub(crate) fn of(data: Bytes) -> Result<Self, BadBatch> {
        if !batch::is_batch(&data) {
            return Ok(Message::from_server(data.clone()).map_or(Self::Other(data), Self::Message));
        }
        match batch::split(&data, MAX_BATCH) {
            Ok(members) if !members.is_empty() => Ok(Self::Batch(members)),
            Ok(_) | Err(BadBatch::NotJson(_)) => Ok(Self::Other(data)),
            Err(error @ BadBatch::TooMany { .. }) => Err(error),
        }
    }

    /// Whether this is or contains a progress notification.
    pub(crate) fn is_progress(&self) -> bool {
        let says_so = |message: &Message| message.method() == Some(PROGRESS);
        match self {
            Self::Message(message) => says_so(message),
            Self::Batch(members) => {
                let mut messages = members
                    .iter()
                    .filter_map(|raw| Message::from_server(raw.clone()).ok());
                messages.any(|message| says_so(&message))
            }
            Self::Other(_) => false,
        }
    }

    /// The progress that a notification reports.
    pub(crate) fn progress(&self) -> Option<f64> {
        let Self::Message(message) = self else {
            return None;
        };
        let progress: f64 = message.text(message.param("progress")?).parse().ok()?;
        // After an infinite value, no later progress could be larger.
        Some(progress).filter(|progress| progress.is_finite())
    }

    /// The message that passes the test, alone or in a batch.
    pub(crate) fn find(self, is_it: impl Fn(&Message) -> bool) -> Option<Message> {
        match self {
            Self::Message(message) => Some(message).filter(is_it),
            Self::Batch(members) => {
                let mut messages = members
                    .into_iter()
                    .filter_map(|raw| Message::from_server(raw).ok());
                messages.find(is_it)
            }
            Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
