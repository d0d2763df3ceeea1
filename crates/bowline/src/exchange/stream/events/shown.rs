//! What the client sees of a server's event, and what the gateway learns from it.

use std::sync::Arc;

use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::Event;
use bytes::Bytes;

use super::{EventRelay, Phase};
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::memory::{Remembered, accepts};
use crate::exchange::tool_filter::ActiveFilter;
use crate::exchange::tool_lesson as lesson;
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::Content;
use crate::session::{ServerRequest, Session};
use crate::upstream::{StreamError, is_lie};

impl EventRelay {
    /// Adds an event to what the client gets, as the client gets it and if it may.
    pub(super) fn show(&mut self, event: Event) -> Result<(), StreamError> {
        if let Some(id) = event.id().filter(|id| !id.is_empty()) {
            self.last_event_id = Some(Bytes::copy_from_slice(id));
        }
        let data = event.data().filter(|data| !data.is_empty());
        let has_data = data.is_some();
        let content = match data {
            Some(data) => Content::of(data)?,
            None => Content::Other(Bytes::new()),
        };
        let Some(content) = self.rewrite.admitted(&event, content) else {
            return Ok(());
        };
        let Some(mut content) = self.filtered(content) else {
            return Ok(());
        };
        if content.is_progress() {
            self.timeout.iter_mut().for_each(CallTimeout::put_off);
            let progress = content.progress();
            if progress.is_some() && progress <= self.progress.told {
                return Ok(());
            }
            self.progress.reached = progress.or(self.progress.reached);
        }
        match &mut content {
            Content::Message(message) if self.is_fingerprint(message) => {
                // A lost session has nothing to resume.
                self.last_event_id = None;
                return Err(StreamError::Fingerprint);
            }
            Content::Message(message) if self.is_stray(message) => return Ok(()),
            Content::Message(message) => self.note(message),
            Content::Batch(members) => {
                members.retain(|raw| {
                    let message = Message::from_server(raw.clone());
                    !message.is_ok_and(|message| self.is_stray(&message))
                });
                if members.is_empty() {
                    return Ok(());
                }
                let messages = members.iter().map(|raw| Message::from_server(raw.clone()));
                messages.flatten().for_each(|message| self.note(&message));
            }
            Content::Other(_) => {}
        }
        let shown = self.rewrite.event(event, &content, &mut self.ready);
        self.ready.push_back(shown.ok_or(StreamError::Seal)?);
        self.has_told |= has_data;
        let remembered = self.remember();
        self.stored_first.extend(remembered);
        Ok(())
    }

    /// The content without tools that the operator does not allow, if it may have any.
    fn filtered(&self, content: Content) -> Option<Content> {
        if !self.lesson.may_be_listing() {
            return Some(content);
        }
        let on = self.on.as_ref();
        match on.and_then(|on| ActiveFilter::of(&on.leg.upstream)) {
            None => Some(content),
            Some(filter) => filter.event(self.lesson, content),
        }
    }

    /// Remembers the request once it is answered. `None`: there is nothing to wait for.
    fn remember(&mut self) -> Option<Remembered> {
        if self.phase != Phase::Answered {
            return None;
        }
        let (memory, session) = (self.memory.take()?, self.session()?);
        memory.begin(&session, &self.on.as_ref()?.leg)
    }

    /// Whether a message is a response that no request waits for on this stream, or a member's progress of a request that
    /// does not wait at it.
    fn is_stray(&self, message: &Message) -> bool {
        if self.has_answered() && self.rewrite.is_answer(message) {
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
        let waits_here = !self.has_answered() && !self.rewrite.is_anothers(message);
        let is_open = |session: Arc<Session>| {
            let request = self.rewrite.progressing(message);
            request.is_some_and(|request| session.calls.is_open(request.as_id()))
        };
        waits_here || self.session().is_some_and(is_open)
    }

    /// Whether the response to the stream's request says that the session is lost.
    fn is_fingerprint(&self, message: &Message) -> bool {
        self.suspect.as_ref().is_some_and(|server| {
            let prints = &server.recovery.fingerprints;
            self.rewrite.is_answer(message) && is_lie(prints, message.raw())
        })
    }

    /// Learns from a message.
    fn note(&mut self, message: &Message) {
        if self.rewrite.is_answer(message) {
            self.phase = Phase::Answered;
            self.memory.take_if(|_| !accepts(message));
            self.timeout = None;
            if let (Some(session), Some(on)) = (self.session(), &self.on) {
                if let StreamOrigin::Request(id) = self.rewrite.origin() {
                    session.calls.answered(id.as_id());
                }
                self.lesson.take(&session, &on.leg, message);
                if self.lesson.is_listing() {
                    self.stored_first.extend(session.tools_written());
                }
            }
            return;
        }
        let tools_changed = lesson::is_change(message);
        let mark = self.rewrite.mark(message);
        if !tools_changed && mark.is_none() {
            return;
        }
        let Some(session) = self.session() else {
            return;
        };
        if tools_changed {
            session.revoke_tools();
            self.stored_first.extend(session.tools_written());
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
}
