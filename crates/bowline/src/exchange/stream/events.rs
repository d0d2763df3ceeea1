//! A server's event stream on its way to the client: each event is inspected, its ids are sealed, and it is
//! passed on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bowline_wire::message::{Message, RawId};
use bowline_wire::sse::Decoder;
use bytes::Bytes;

use crate::config::Server;
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::recovery::memory::{Memory, Remembered};
use crate::exchange::replay::tool_hints::ToolLesson;
use crate::exchange::stream::rescue::Broken;
use crate::leg::Leg;
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::{Content, Rewrite};
use crate::session::Session;
use crate::upstream::{EventSource, MAX_HELD_ANSWER, MAX_MESSAGE, StreamError, may_lie};

/// The largest event that is passed on: a message, and the fields around it. An event must be complete to be
/// rewritten.
pub(crate) const MAX_EVENT: usize = MAX_MESSAGE + 64 * 1024;

/// A stream that has already ended is passed on as one body up to this size.
const AT_ONCE: usize = 64 * 1024;

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventRelay {
    pub(super) source: EventSource,
    pub(super) decoder: Decoder,
    pub(super) rewrite: Rewrite,
    /// Events that were read ahead.
    pub(super) ready: VecDeque<Bytes>,
    pub(super) saw_event_id: bool,
    /// Whether an event was passed on.
    pub(super) has_told: bool,
    pub(super) timeout: Option<CallTimeout>,
    /// The stream's session; weak, because the session holds its streams.
    pub(super) session: Weak<Session>,
    /// Held while the exchange is in progress.
    pub(super) leg: Option<Arc<Leg>>,
    /// What the response says about the server's tools.
    pub(super) lesson: ToolLesson,
    /// The request to remember if the response is a result, and the response while that is stored.
    pub(super) memory: Option<Box<Memory>>,
    pub(super) remembering: Option<Box<(Vec<Remembered>, Shown)>>,
    /// Changed tool hints are being stored; the client gets the event afterwards.
    pub(super) teaching: Option<Remembered>,
    /// A request waits for its response, so an end without one is an error.
    pub(super) must_answer: bool,
    pub(super) answered: bool,
    /// The server's last event id.
    pub(super) last_event_id: Option<Bytes>,
    /// The id of an event that was passed on already.
    pub(super) skip: Option<Bytes>,
    /// The last progress of the request, and the last progress that the client has seen.
    pub(super) progress: Option<f64>,
    pub(super) told_progress: Option<f64>,
    /// The request has timed out, so nothing more is read.
    pub(super) is_over: bool,
    /// An error met while reading ahead, until it is returned.
    pub(super) broke: Option<StreamError>,
    /// Set if the operator configured fingerprints of lost sessions that have a success status.
    pub(super) suspect: Option<Arc<Server>>,
}

/// An event as the client gets it, and its original content.
pub(super) type Shown = (Bytes, Content);

// === impl EventRelay ===

impl EventRelay {
    pub(crate) fn new(source: EventSource, rewrite: Rewrite) -> Self {
        Self {
            source,
            decoder: Decoder::new(MAX_EVENT),
            rewrite,
            ready: VecDeque::new(),
            saw_event_id: false,
            has_told: false,
            timeout: None,
            session: Weak::new(),
            leg: None,
            lesson: ToolLesson::Unknown,
            memory: None,
            remembering: None,
            teaching: None,
            must_answer: false,
            answered: false,
            last_event_id: None,
            skip: None,
            progress: None,
            told_progress: None,
            is_over: false,
            broke: None,
            suspect: None,
        }
    }

    /// Ends the stream with an error for its request when that times out.
    pub(crate) fn with_timeout(mut self, timeout: Option<CallTimeout>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the session and the leg that the stream belongs to.
    pub(crate) fn of(mut self, session: &Arc<Session>, leg: &Arc<Leg>) -> Self {
        self.session = Arc::downgrade(session);
        self.leg = Some(Arc::clone(leg));
        self
    }

    /// The stream answers a request, and the response teaches this.
    pub(crate) fn answering(mut self, lesson: ToolLesson) -> Self {
        self.must_answer = true;
        self.lesson = lesson;
        self
    }

    /// Remembers the request if the response is a result.
    pub(crate) fn remembers(&mut self, memory: Box<Memory>) {
        self.memory = Some(memory);
    }

    /// Checks the response against the operator's fingerprints of lost sessions, if any can have a success
    /// status.
    pub(crate) fn suspecting(mut self, server: Arc<Server>) -> Self {
        let is_suspect = may_lie(&server.recovery.fingerprints);
        self.suspect = is_suspect.then_some(server);
        self
    }

    /// The stream was resumed after the event with this id. Until there is a newer one, it can be resumed
    /// there again.
    pub(crate) fn after(mut self, last: Option<Bytes>) -> Self {
        self.saw_event_id = last.is_some();
        self.last_event_id = last;
        self
    }

    /// Skips the event after which the stream was resumed, if the server repeats it.
    pub(crate) fn without_repeat(mut self) -> Self {
        self.skip = self.last_event_id.clone();
        self
    }

    /// Skips progress up to this value, which the client saw on the first attempt.
    pub(crate) fn beyond(mut self, told: Option<f64>) -> Self {
        self.told_progress = told;
        self.progress = told;
        self
    }

    /// Where the stream broke, and what is needed to resume it.
    pub(crate) fn broken(&mut self) -> Broken {
        Broken {
            generation: self.rewrite.leg(),
            last: self.last_event_id.clone(),
            progress: self.progress,
            has_told: self.has_told,
            timeout: self.timeout.take(),
        }
    }

    /// Whether dropping this would lose the response of a running request: it belongs to a request, and the
    /// upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        matches!(self.rewrite.origin(), StreamOrigin::Request(_)) && !self.saw_event_id
    }

    /// Whether the stream's request has its response.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Reads up to the response to the request with this id. Everything read is still passed on.
    pub(crate) async fn until_answer(&mut self, id: RawId<'_>) -> Result<Message, StreamError> {
        let mut held = 0;
        loop {
            let (shown, content) = poll_fn(|cx| self.poll_event(cx))
                .await
                .ok_or(StreamError::NoAnswer)??;
            held += shown.len();
            if held > MAX_HELD_ANSWER {
                return Err(StreamError::TooMuchBefore(MAX_HELD_ANSWER));
            }
            self.ready.push_back(shown);
            let answers = |message: &Message| message.answers(id);
            if let Some(answer) = content.find(answers) {
                return Ok(answer);
            }
        }
    }

    /// The whole stream, if it has already ended.
    pub(crate) async fn at_once(&mut self) -> Option<Bytes> {
        let mut held = 0;
        let has_ended = poll_fn(|cx| {
            while held <= AT_ONCE {
                match self.poll_event(cx) {
                    Poll::Ready(Some(Ok((shown, _)))) => {
                        held += shown.len();
                        self.ready.push_back(shown);
                    }
                    Poll::Ready(Some(Err(error))) => {
                        self.broke = Some(error);
                        return Poll::Ready(false);
                    }
                    Poll::Ready(None) => return Poll::Ready(true),
                    Poll::Pending => return Poll::Ready(false),
                }
            }
            Poll::Ready(false)
        });
        has_ended.await.then(|| self.take_ready())
    }

    /// The events that were read and not passed on yet.
    pub(crate) fn take_ready(&mut self) -> Bytes {
        match self.ready.len() {
            1 => self.ready.pop_front().unwrap_or_default(),
            _ => Vec::from(std::mem::take(&mut self.ready)).concat().into(),
        }
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(shown) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(shown)));
        }
        if let Some(broke) = self.broke.take() {
            return Poll::Ready(Some(Err(broke)));
        }
        let next = ready!(self.poll_event(cx));
        Poll::Ready(next.map(|event| event.map(|(shown, _)| shown)))
    }

    /// The next event as the client gets it, and its content.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
        loop {
            if let Some(remembering) = &mut self.remembering {
                while let Some(waited_for) = remembering.0.last_mut() {
                    // Stored or not, the client gets the response.
                    _ = ready!(Pin::new(waited_for).poll(cx));
                    remembering.0.pop();
                }
                let remembered = self.remembering.take();
                return Poll::Ready(remembered.map(|remembered| Ok(remembered.1)));
            }
            let event = self.decoder.next_event();
            if let (Err(_), Some(session)) = (&event, self.session.upgrade()) {
                self.lesson.miss(&session);
            }
            if let Some(event) = event? {
                if self.is_repeated(&event) {
                    continue;
                }
                if let Some(shown) = self.show(&event)? {
                    let mut waited_for: Vec<_> = self.teaching.take().into_iter().collect();
                    waited_for.extend(self.remember());
                    if waited_for.is_empty() {
                        return Poll::Ready(Some(Ok(shown)));
                    }
                    self.remembering = Some(Box::new((waited_for, shown)));
                }
                continue;
            }
            match self.poll_data(cx) {
                Poll::Ready(Some(data)) => self.decoder.push(data?),
                // With an event id, the server chose to end the stream: the client may resume it.
                Poll::Ready(None)
                    if self.must_answer
                        && !self.answered
                        && !self.saw_event_id
                        && !self.is_over =>
                {
                    return Poll::Ready(Some(Err(StreamError::NoAnswer)));
                }
                Poll::Ready(None) if self.is_over || self.decoder.is_between_events() => {
                    return Poll::Ready(None);
                }
                Poll::Ready(None) => return Poll::Ready(Some(Err(StreamError::Cut))),
                Poll::Pending => return self.poll_timeout(cx),
            }
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.source.poll_data(cx)
    }

    /// On timeout the client gets an error for its request, and the stream ends.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
        let Some(timeout) = &mut self.timeout else {
            return Poll::Pending;
        };
        let error = ready!(timeout.poll_begun(cx));
        let event = timeout.event(error);
        self.timeout = None;
        self.is_over = true;
        Poll::Ready(event.map(|event| Ok((event, Content::Other(Bytes::new())))))
    }
}
