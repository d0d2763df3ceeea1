//! What the client sees of a server's event, and what the gateway learns from it.

use std::borrow::Cow;
use std::sync::Arc;

use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::Event;
use bytes::Bytes;

use super::events::{EventRelay, Shown};
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::recovery::memory::{Remembered, accepts};
use crate::exchange::replay::tool_hints as lesson;
use crate::exchange::tool_filter::ActiveFilter;
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::Content;
use crate::session::{ServerRequest, Session};
use crate::upstream::{StreamError, is_lie};

impl EventRelay {
    /// An event as the client gets it, and its content; `None` if it must not be passed on.
    pub(super) fn show(&mut self, event: &Event) -> Result<Option<Shown>, StreamError> {
        if let Some(id) = event.id().filter(|id| !id.is_empty()) {
            self.saw_event_id = true;
            self.last_event_id = Some(Bytes::copy_from_slice(id));
        }
        let data = event.data().filter(|data| !data.is_empty());
        let has_data = data.is_some();
        let content = match data {
            // A slice of the event's own bytes, unless the data spans several lines.
            Some(Cow::Borrowed(part)) => Content::of(event.raw().slice_ref(part))?,
            Some(Cow::Owned(joined)) => Content::of(joined.into())?,
            None => Content::Other(Bytes::new()),
        };
        let Some(content) = self.rewrite.admitted(event, content) else {
            return Ok(None);
        };
        let Some(mut content) = self.filtered(content) else {
            return Ok(None);
        };
        if content.is_progress() {
            self.timeout.iter_mut().for_each(CallTimeout::put_off);
            let progress = content.progress();
            if progress.is_some() && progress <= self.told_progress {
                return Ok(None);
            }
            self.progress = progress.or(self.progress);
        }
        match &mut content {
            Content::Message(message) if self.is_fingerprint(message) => {
                // A lost session has nothing to resume.
                self.last_event_id = None;
                return Err(StreamError::Fingerprint);
            }
            Content::Message(message) if self.is_stray(message) => return Ok(None),
            Content::Message(message) => self.note(message),
            Content::Batch(members) => {
                members.retain(|raw| {
                    let message = Message::from_server(raw.clone());
                    !message.is_ok_and(|message| self.is_stray(&message))
                });
                if members.is_empty() {
                    return Ok(None);
                }
                let messages = members.iter().map(|raw| Message::from_server(raw.clone()));
                messages.flatten().for_each(|message| self.note(&message));
            }
            Content::Other(_) => {}
        }
        let shown = self.rewrite.event(event, &content);
        let shown = shown.ok_or(StreamError::Seal)?;
        self.has_told |= has_data;
        Ok(Some((shown, content)))
    }

    /// The content without tools that the operator does not allow, if it may have any.
    fn filtered(&self, content: Content) -> Option<Content> {
        if !self.lesson.may_be_listing() {
            return Some(content);
        }
        let leg = self.leg.as_ref();
        match leg.and_then(|leg| ActiveFilter::of(&leg.upstream)) {
            None => Some(content),
            Some(filter) => filter.event(self.lesson, content),
        }
    }

    /// Remembers the request once it is answered. `None`: there is nothing to wait for.
    pub(super) fn remember(&mut self) -> Option<Remembered> {
        if !self.answered {
            return None;
        }
        let (memory, session) = (self.memory.take()?, self.session.upgrade()?);
        memory.begin(&session, self.leg.as_ref()?)
    }

    /// Whether a message is a response that no request waits for on this stream, or a member's progress of a request that
    /// does not wait at it.
    pub(super) fn is_stray(&self, message: &Message) -> bool {
        if self.answered && self.rewrite.is_answer(message) {
            return true;
        }
        if self.rewrite.is_member_progress(message) {
            return !self.is_of_open_call(message);
        }
        let is_anothers = self.rewrite.is_anothers(message);
        if is_anothers {
            tracing::warn!("response with another id dropped");
        }
        is_anothers
    }

    /// Whether a member's progress is of a request that waits for its answer: this stream's, or another of its session.
    fn is_of_open_call(&self, message: &Message) -> bool {
        let waits_here = !self.answered && !self.rewrite.is_anothers(message);
        let is_open = |session: Arc<Session>| {
            let request = self.rewrite.progressing(message);
            request.is_some_and(|request| session.calls.is_open(request.as_id()))
        };
        waits_here || self.session.upgrade().is_some_and(is_open)
    }

    /// Whether the response to the stream's request says that the session is lost.
    pub(super) fn is_fingerprint(&self, message: &Message) -> bool {
        self.suspect.as_ref().is_some_and(|server| {
            let prints = &server.recovery.fingerprints;
            self.rewrite.is_answer(message) && is_lie(prints, message.raw())
        })
    }

    /// Learns from a message.
    pub(super) fn note(&mut self, message: &Message) {
        if self.rewrite.is_answer(message) {
            self.answered = true;
            self.memory.take_if(|_| !accepts(message));
            self.timeout = None;
            if let (Some(session), Some(leg)) = (self.session.upgrade(), &self.leg) {
                if let StreamOrigin::Request(id) = self.rewrite.origin() {
                    session.calls.answered(id.as_id());
                }
                self.lesson.take(&session, leg, message);
                if self.lesson.is_listing() {
                    self.teaching = session.tools_written();
                }
            }
            return;
        }
        let tools_changed = lesson::is_change(message);
        let mark = self.rewrite.mark(message);
        if !tools_changed && mark.is_none() {
            return;
        }
        let Some(session) = self.session.upgrade() else {
            return;
        };
        if tools_changed {
            session.revoke_tools();
            self.teaching = session.tools_written();
        }
        match (mark, message.kind()) {
            (Some(mark), Kind::Request) => session.server_requests.asked(ServerRequest {
                mark,
                shown_on: self.rewrite.origin().clone(),
            }),
            (Some(mark), _) => session.server_requests.settled(mark.as_id()),
            (None, _) => {}
        }
    }

    /// Some servers begin a resumed stream with the event after which it should begin.
    pub(super) fn is_repeated(&mut self, event: &Event) -> bool {
        let skip = self.skip.take();
        skip.is_some_and(|skip| event.id() == Some(&skip[..]))
    }
}
