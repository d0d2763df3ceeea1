//! A server's stream of events on its way to the client: each is looked at, marked and passed on.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bowline_wire::message::Message;
use bowline_wire::sse::Decoder;
use bytes::Bytes;

use crate::config::Server;
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::recovery::memory::{Memory, Remembered};
use crate::exchange::replay::tool_hints::ToolLesson;
use crate::exchange::stream::rescue::Broken;
use crate::leg::Leg;
use crate::leg::marks::Born;
use crate::leg::rewrite::{Content, Rewrite};
use crate::session::Session;
use crate::upstream::{MAX_HELD_ANSWER, StreamError, may_lie, poll_data};
use bowline_egress::{UpstreamBody, WireError};

/// The largest event that is passed on. An event is held whole, for the rewrite.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// The most of a stream that is passed on as one body, if it has ended already.
const AT_ONCE: usize = 64 * 1024;

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventRelay {
    pub(super) body: UpstreamBody,
    pub(super) decoder: Decoder,
    pub(super) rewrite: Rewrite,
    /// Events that were read while waiting for one of them.
    pub(super) ready: VecDeque<Bytes>,
    pub(super) saw_event_id: bool,
    /// Something was passed on.
    pub(super) has_told: bool,
    pub(super) timeout: Option<CallTimeout>,
    /// Whose stream it is; weak, because the session holds its streams.
    pub(super) session: Weak<Session>,
    /// Held while its exchange is under way.
    pub(super) leg: Option<Arc<Leg>>,
    /// What the answer teaches of the server's tools.
    pub(super) lesson: ToolLesson,
    /// What is remembered if the answer is a result, and the answer while that is done.
    pub(super) memory: Option<Box<Memory>>,
    pub(super) remembering: Option<Box<(Vec<Remembered>, Shown)>>,
    /// What was said of the server's tools is being written: the client hears it afterwards.
    pub(super) teaching: Option<Remembered>,
    /// A request waits for its answer, so an end without one is a cut.
    pub(super) must_answer: bool,
    pub(super) answered: bool,
    /// The server's last event id.
    pub(super) last_event_id: Option<Bytes>,
    /// An event with this id has been passed on already.
    pub(super) skip: Option<Bytes>,
    /// How far the request said it has got, and how far the client knows that it has.
    pub(super) progress: Option<f64>,
    pub(super) told_progress: Option<f64>,
    /// Nothing more is read: the request was given up.
    pub(super) is_over: bool,
    /// How it broke off while it was looked at, until that is told.
    pub(super) broke: Option<StreamError>,
    /// Whose operator says that a good status may mean a lost session.
    pub(super) suspect: Option<Arc<Server>>,
}

/// An event as the client sees it, and what is in it as it came.
pub(super) type Shown = (Bytes, Content);

// === impl EventRelay ===

impl EventRelay {
    pub(crate) fn new(body: UpstreamBody, rewrite: Rewrite) -> Self {
        Self {
            body,
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

    /// Ends the stream with an error for its request if that waits for too long.
    pub(crate) fn with_timeout(mut self, timeout: Option<CallTimeout>) -> Self {
        self.timeout = timeout;
        self
    }

    /// This is a stream of that session, read from this leg.
    pub(crate) fn of(mut self, session: &Arc<Session>, leg: &Arc<Leg>) -> Self {
        self.session = Arc::downgrade(session);
        self.leg = Some(Arc::clone(leg));
        self
    }

    /// The stream answers a request, and the answer teaches this.
    pub(crate) fn answering(mut self, lesson: ToolLesson) -> Self {
        self.must_answer = true;
        self.lesson = lesson;
        self
    }

    /// The request is to be remembered if the answer is a result.
    pub(crate) fn remembers(&mut self, memory: Box<Memory>) {
        self.memory = Some(memory);
    }

    /// An answer may be the operator's fingerprint of a lost session, although the status is good.
    pub(crate) fn suspecting(mut self, server: Arc<Server>) -> Self {
        let is_suspect = may_lie(&server.recovery.fingerprints);
        self.suspect = is_suspect.then_some(server);
        self
    }

    /// The stream is resumed after the event of this id. Until there is another one, it is the place from
    /// which it can be gone on with.
    pub(crate) fn after(mut self, last: Option<Bytes>) -> Self {
        self.saw_event_id = last.is_some();
        self.last_event_id = last;
        self
    }

    /// The server may begin with the event after which it was resumed, which the client has.
    pub(crate) fn without_repeat(mut self) -> Self {
        self.skip = self.last_event_id.clone();
        self
    }

    /// Progress up to this was told when the request went for the first time.
    pub(crate) fn beyond(mut self, told: Option<f64>) -> Self {
        self.told_progress = told;
        self.progress = told;
        self
    }

    /// Where the stream broke, and what goes on with it.
    pub(crate) fn broken(&mut self) -> Broken {
        Broken {
            generation: self.rewrite.leg(),
            last: self.last_event_id.clone(),
            progress: self.progress,
            has_told: self.has_told,
            timeout: self.timeout.take(),
        }
    }

    /// Whether leaving this unread would lose what a running request has to say: it belongs to a
    /// request, and the upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        matches!(self.rewrite.born(), Born::Request(_)) && !self.saw_event_id
    }

    /// Whether the request of the stream has its answer.
    pub(crate) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Reads up to the answer to the request with this id; everything read is still passed on.
    pub(crate) async fn until_answer(&mut self, id: &str) -> Result<Message, StreamError> {
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

    /// All of the stream, if it has ended already: then there is nothing to hold open.
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

    /// What was read and not passed on yet.
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

    /// The next event as the client sees it, and what is in it.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
        loop {
            if let Some(remembering) = &mut self.remembering {
                while let Some(waited_for) = remembering.0.last_mut() {
                    // Done or not possible: the answer is the answer.
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
                // With an event id the end is the server's choice: the client may come back for more.
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
                Poll::Pending => return self.poll_overtime(cx),
            }
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, WireError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        poll_data(&mut self.body, cx)
    }

    /// When patience is over the client gets an error for its request, and the stream ends.
    fn poll_overtime(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
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
