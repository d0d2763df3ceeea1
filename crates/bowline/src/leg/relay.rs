//! An upstream's answer on its way to the client, read only as fast as the client reads.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bowline_wire::batch::BadBatch;
use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::{Decoder, Event, EventTooLarge};
use bytes::Bytes;
use http::StatusCode;
use http_body::Body as _;
use thiserror::Error;

use super::Leg;
use super::lesson::{self, Lesson};
use super::memory::{Memory, Remembered, accepts};
use super::overtime::Overtime;
use super::passing::Passing;
use super::rescue::Broken;
use super::rewrite::{Content, Rewrite};
use super::send::MAX_HELD_ANSWER;
use crate::config::Server;
use crate::egress::{UpstreamBody, WireError};
use crate::session::{Born, Question, Session};
use crate::telemetry::SessionHash;
use crate::upstream::{UpstreamError, is_fingerprint, is_suspect};

/// The largest event that is passed on. An event is held whole, for the rewrite.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// The most of a stream that is passed on as one body, if it has ended already.
const AT_ONCE: usize = 64 * 1024;

/// A body that is passed on while it arrives.
#[derive(Debug)]
pub(crate) enum Relay {
    /// Events, rewritten one by one.
    Events(Box<EventRelay>),
    /// Anything else, frame by frame as it came.
    Frames(Box<FrameRelay>),
}

/// A body that is not events.
#[derive(Debug)]
pub(crate) struct FrameRelay {
    /// What was read already, and what is looked for in the rest.
    passing: Passing,
    body: UpstreamBody,
    overtime: Option<Overtime>,
    session: SessionHash,
    /// Held while its exchange is under way.
    leg: Arc<Leg>,
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventRelay {
    body: UpstreamBody,
    decoder: Decoder,
    rewrite: Rewrite,
    /// Events that were read while waiting for one of them.
    ready: VecDeque<Bytes>,
    saw_event_id: bool,
    /// Something was passed on.
    has_told: bool,
    overtime: Option<Overtime>,
    /// Whose stream it is; weak, because the session holds its streams.
    session: Weak<Session>,
    /// Held while its exchange is under way.
    leg: Option<Arc<Leg>>,
    /// What the answer teaches of the server's tools.
    lesson: Lesson,
    /// What is remembered if the answer is a result, and the answer while that is done.
    memory: Option<Box<Memory>>,
    remembering: Option<Box<(Vec<Remembered>, Shown)>>,
    /// What was said of the server's tools is being written: the client hears it afterwards.
    teaching: Option<Remembered>,
    /// A request waits for its answer, so an end without one is a cut.
    must_answer: bool,
    answered: bool,
    /// The server's last event id.
    last_event_id: Option<Bytes>,
    /// An event with this id has been passed on already.
    skip: Option<Bytes>,
    /// How far the request said it has got, and how far the client knows that it has.
    progress: Option<f64>,
    told_progress: Option<f64>,
    /// Nothing more is read: the request was given up.
    is_over: bool,
    /// How it broke off while it was looked at, until that is told.
    broke: Option<StreamError>,
    /// Whose operator says that a good status may mean a lost session.
    suspect: Option<Arc<Server>>,
}

/// An event as the client sees it, and what is in it as it came.
type Shown = (Bytes, Content);

/// Why a stream broke off.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    #[error("the server's connection broke: {0}")]
    Broken(#[from] WireError),
    #[error("the server's stream ended within an event")]
    Cut,
    #[error("the server sent {0}")]
    EventTooLarge(#[from] EventTooLarge),
    #[error("the server sent {0}")]
    Batch(#[from] BadBatch),
    #[error("an id could not be sealed")]
    Seal,
    #[error("the server's stream ended without the answer")]
    NoAnswer,
    #[error("the server sent more than {0} bytes before its answer")]
    TooMuchBefore(usize),
    #[error("the server's answer is not one to this request")]
    AnotherId,
    #[error("the server's stream could not be opened")]
    NotOpened,
    #[error("the server's answer did not go on in time")]
    Overtime,
    #[error("the server's answer is one that for this server means a lost session")]
    Fingerprint,
}

// === impl StreamError ===

impl StreamError {
    /// Whether the same would come again, however often the server is asked.
    pub(crate) fn is_for_good(&self) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::LargeEventAgain) {
            return false;
        }
        match self {
            Self::EventTooLarge(_) | Self::Batch(_) | Self::Seal | Self::TooMuchBefore(_) => true,
            Self::Broken(_)
            | Self::Cut
            | Self::NoAnswer
            | Self::AnotherId
            | Self::NotOpened
            | Self::Overtime
            | Self::Fingerprint => false,
        }
    }
}

// === impl Relay ===

impl Relay {
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        match self {
            Self::Events(events) => events.poll_next(cx),
            Self::Frames(frames) => frames.poll_next(cx),
        }
    }

    /// What was read so far and not passed on.
    pub(crate) fn into_held(self) -> Bytes {
        match self {
            Self::Events(mut events) => events.take_ready(),
            Self::Frames(_) => Bytes::new(),
        }
    }

    /// Whether leaving this unread would lose what a running request has to say: it belongs to a
    /// request, and the upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        match self {
            Self::Events(events) => {
                matches!(events.rewrite.born(), Born::Request(_)) && !events.saw_event_id
            }
            Self::Frames { .. } => true,
        }
    }
}

// === impl FrameRelay ===

impl FrameRelay {
    pub(super) fn new(
        passing: Passing,
        body: UpstreamBody,
        overtime: Option<Overtime>,
        (session, leg): (&Session, &Arc<Leg>),
    ) -> Self {
        Self {
            passing,
            body,
            overtime,
            session: session.hash,
            leg: Arc::clone(leg),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            if let Some(part) = self.passing.pop() {
                return Poll::Ready(Some(Ok(part)));
            }
            let passed = match (poll_data(&mut self.body, cx), &mut self.overtime) {
                (Poll::Ready(Some(Ok(data))), overtime) => {
                    overtime.iter_mut().for_each(Overtime::put_off);
                    self.passing.push(data)
                }
                (Poll::Ready(Some(Err(error))), _) => Err(error.into()),
                (Poll::Ready(None), _) => match self.passing.end() {
                    Ok(()) => return Poll::Ready(None),
                    Err(error) => Err(error),
                },
                (Poll::Pending, Some(overtime)) => {
                    return overtime
                        .poll_begun(cx)
                        .map(|_| Some(Err(StreamError::Overtime)));
                }
                (Poll::Pending, None) => return Poll::Pending,
            };
            if let Err(error) = passed {
                self.tell_cut(&error);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// The client sees a cut, and no status or error tells why: it is counted and logged here.
    fn tell_cut(&self, error: &StreamError) {
        let server = &self.leg.upstream;
        let (session, name) = (self.session, &server.name);
        let fault = self
            .leg
            .fault(UpstreamError::OutcomeUnknown(error.to_string().into()));
        let reason = fault.telling().reason;
        server.metrics.refused(reason);
        match error {
            StreamError::AnotherId => {
                tracing::warn!(reason, %session, server = %name, "answer under another id, cut off");
            }
            error => {
                tracing::warn!(reason, %session, server = %name, %error, "an answer was cut off")
            }
        }
    }
}

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
            overtime: None,
            session: Weak::new(),
            leg: None,
            lesson: Lesson::Unknown,
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
    pub(crate) fn with_overtime(mut self, overtime: Option<Overtime>) -> Self {
        self.overtime = overtime;
        self
    }

    /// This is a stream of that session, read from this leg.
    pub(crate) fn of(mut self, session: &Arc<Session>, leg: &Arc<Leg>) -> Self {
        self.session = Arc::downgrade(session);
        self.leg = Some(Arc::clone(leg));
        self
    }

    /// The stream answers a request, and the answer teaches this.
    pub(super) fn answering(mut self, lesson: Lesson) -> Self {
        self.must_answer = true;
        self.lesson = lesson;
        self
    }

    /// The request is to be remembered if the answer is a result.
    pub(super) fn remembers(&mut self, memory: Box<Memory>) {
        self.memory = Some(memory);
    }

    /// An answer may be the operator's fingerprint of a lost session, although the status is good.
    pub(crate) fn suspecting(mut self, server: Arc<Server>) -> Self {
        let is_suspect = is_suspect(&server.recovery.fingerprints, StatusCode::OK);
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
            at: self.rewrite.leg(),
            last: self.last_event_id.clone(),
            progress: self.progress,
            has_told: self.has_told,
            overtime: self.overtime.take(),
        }
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
    fn take_ready(&mut self) -> Bytes {
        match self.ready.len() {
            1 => self.ready.pop_front().unwrap_or_default(),
            _ => Vec::from(std::mem::take(&mut self.ready)).concat().into(),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
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

    /// An event as the client sees it, and what is in it; `None` if the client knows it already.
    fn show(&mut self, event: &Event) -> Result<Option<Shown>, StreamError> {
        if let Some(id) = event.id().filter(|id| !id.is_empty()) {
            self.saw_event_id = true;
            self.last_event_id = Some(Bytes::copy_from_slice(id));
        }
        let data = event.data().filter(|data| !data.is_empty());
        let has_data = data.is_some();
        let content = match data {
            // A slice of the event's own bytes unless the data spans lines.
            Some(Cow::Borrowed(part)) => Content::of(event.raw().slice_ref(part))?,
            Some(Cow::Owned(joined)) => Content::of(joined.into())?,
            None => Content::Other(Bytes::new()),
        };
        let Some(mut content) = self.rewrite.admitted(event, content) else {
            tracing::warn!("a server's message says what only Bowline may say: not passed on");
            return Ok(None);
        };
        if content.is_progress() {
            self.overtime.iter_mut().for_each(Overtime::put_off);
            let progress = content.progress();
            if progress.is_some() && progress <= self.told_progress {
                return Ok(None);
            }
            self.progress = progress.or(self.progress);
        }
        match &mut content {
            Content::Message(message) if self.is_fingerprint(message) => {
                // There is nothing to resume.
                self.last_event_id = None;
                return Err(StreamError::Fingerprint);
            }
            Content::Message(message) if self.is_stray(message) => return Ok(None),
            Content::Message(message) => self.note(message),
            Content::Batch(members) => {
                members.retain(|raw| {
                    let message = Message::parse(raw.clone());
                    !message.is_ok_and(|message| self.is_stray(&message))
                });
                if members.is_empty() {
                    return Ok(None);
                }
                let messages = members.iter().map(|raw| Message::parse(raw.clone()));
                messages.flatten().for_each(|message| self.note(&message));
            }
            Content::Other(_) => {}
        }
        let shown = self.rewrite.event(event, &content);
        let shown = shown.ok_or(StreamError::Seal)?;
        self.has_told |= has_data;
        Ok(Some((shown, content)))
    }

    /// Remembers the request whose answer has come; `None`: there is nothing to wait for.
    fn remember(&mut self) -> Option<Remembered> {
        if !self.answered {
            return None;
        }
        let (memory, session) = (self.memory.take()?, self.session.upgrade()?);
        memory.begin(&session, self.leg.as_ref()?)
    }

    /// Whether a message is an answer that nobody waits for on this stream.
    fn is_stray(&self, message: &Message) -> bool {
        if self.answered && self.rewrite.is_answer(message) {
            return true;
        }
        let is_anothers = self.rewrite.is_anothers(message);
        if is_anothers {
            tracing::warn!("answer under another id, not passed on");
        }
        is_anothers
    }

    /// Whether the answer to the stream's request says that the session is lost.
    fn is_fingerprint(&self, message: &Message) -> bool {
        self.suspect.as_ref().is_some_and(|server| {
            let prints = &server.recovery.fingerprints;
            self.rewrite.is_answer(message) && is_fingerprint(prints, StatusCode::OK, message.raw())
        })
    }

    /// What a message means for later.
    fn note(&mut self, message: &Message) {
        if self.rewrite.is_answer(message) {
            self.answered = true;
            self.memory.take_if(|_| !accepts(message));
            self.overtime = None;
            if let Some(session) = self.session.upgrade() {
                self.lesson.take(&session, message);
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
            session.forget_tools();
            self.teaching = session.tools_written();
        }
        match (mark, message.kind()) {
            (Some(mark), Kind::Request) => session.questions.asked(Question {
                mark: mark.into(),
                shown_on: self.rewrite.born().clone(),
            }),
            (Some(mark), _) => session.questions.settled(&mark),
            (None, _) => {}
        }
    }

    /// Some servers begin a resumed stream with the very event after which it was to begin.
    fn is_repeated(&mut self, event: &Event) -> bool {
        let skip = self.skip.take();
        skip.is_some_and(|skip| event.id() == Some(&skip[..]))
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, WireError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        poll_data(&mut self.body, cx)
    }

    /// When patience is over the client gets an error for its request, and the stream ends.
    fn poll_overtime(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
        let Some(overtime) = &mut self.overtime else {
            return Poll::Pending;
        };
        let error = ready!(overtime.poll_begun(cx));
        let event = overtime.event(error);
        self.overtime = None;
        self.is_over = true;
        Poll::Ready(event.map(|event| Ok((event, Content::Other(Bytes::new())))))
    }
}

/// The next bytes of a body; trailers mean nothing here.
pub(super) fn poll_data(
    body: &mut UpstreamBody,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, WireError>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
