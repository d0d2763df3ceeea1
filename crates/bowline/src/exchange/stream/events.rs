//! A server's event stream on its way to the client: each event is inspected, its ids are sealed, and it is
//! passed on.

mod shown;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};

use bowline_wire::message::{Message, RawId};
use bowline_wire::skip::Skipped;
use bowline_wire::sse::Event;
use bytes::Bytes;

use crate::config::Server;
use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::memory::{Memory, Remembered};
use crate::exchange::stream::Halt;
use crate::exchange::tool_lesson::ToolLesson;
use crate::leg::Leg;
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::Rewrite;
use crate::session::Session;
use crate::upstream::{EventSource, MAX_HELD_ANSWER, SourceError, StreamError, may_lie};

/// A stream that has already ended is passed on as one body up to this size.
const AT_ONCE: usize = 64 * 1024;

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventRelay {
    source: EventSource,
    rewrite: Rewrite,
    /// Events as the client gets them, which were read and not passed on yet.
    ready: VecDeque<Event>,
    /// What must be stored before they are passed on.
    stored_first: Vec<Remembered>,
    /// An error met while reading ahead, until it is returned.
    broke: Option<StreamError>,
    timeout: Option<CallTimeout>,
    on: Option<SessionLeg>,
    /// What the response says about the server's tools.
    lesson: ToolLesson,
    /// The request to remember if the response is a result.
    memory: Option<Box<Memory>>,
    phase: Phase,
    /// Whether an event was passed on.
    has_told: bool,
    /// The server's last event id, after which the stream can be resumed.
    last_event_id: Option<Bytes>,
    /// The id of an event that was passed on already.
    skip: Option<Bytes>,
    progress: Progress,
    /// Set if the operator configured fingerprints of lost sessions that have a success status.
    suspect: Option<Arc<Server>>,
}

/// Where a stream broke.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) error: StreamError,
    /// The leg that it was read from.
    pub(crate) leg: Arc<Leg>,
    /// The server's last event id.
    pub(crate) last: Option<Bytes>,
    /// The progress of its request, as last reported.
    pub(crate) progress: Option<f64>,
    /// Whether any event was passed on to the client.
    pub(crate) has_told: bool,
    /// The rest of its call's timeout.
    pub(crate) timeout: Option<CallTimeout>,
}

/// The session and the leg that a stream belongs to.
#[derive(Debug)]
struct SessionLeg {
    /// Weak, because the session holds its streams.
    session: Weak<Session>,
    /// Held while the exchange is in progress.
    leg: Arc<Leg>,
}

/// What became of the stream's request.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Answered,
    /// Nothing more is read.
    TimedOut,
}

/// The last progress of the stream's request, and the last that its client has seen.
#[derive(Debug, Default)]
struct Progress {
    reached: Option<f64>,
    told: Option<f64>,
}

// === impl EventRelay ===

impl EventRelay {
    pub(crate) fn new(source: EventSource, rewrite: Rewrite) -> Self {
        Self {
            source,
            rewrite,
            ready: VecDeque::new(),
            stored_first: Vec::new(),
            broke: None,
            timeout: None,
            on: None,
            lesson: ToolLesson::Unknown,
            memory: None,
            phase: Phase::Open,
            has_told: false,
            last_event_id: None,
            skip: None,
            progress: Progress::default(),
            suspect: None,
        }
    }

    /// Ends the stream with an error for its request when that times out.
    pub(crate) fn set_timeout(&mut self, timeout: Option<CallTimeout>) {
        self.timeout = timeout;
    }

    /// Sets the session and the leg that the stream belongs to.
    pub(crate) fn of(mut self, session: &Arc<Session>, leg: &Arc<Leg>) -> Self {
        self.on = Some(SessionLeg {
            session: Arc::downgrade(session),
            leg: Arc::clone(leg),
        });
        self
    }

    /// The stream answers a request, and the response teaches this. It is checked against the fingerprints of lost
    /// sessions that the server's operator configured.
    pub(crate) fn answering(mut self, lesson: ToolLesson, server: Arc<Server>) -> Self {
        self.lesson = lesson;
        self.suspect = may_lie(&server.recovery.fingerprints).then_some(server);
        self
    }

    /// Remembers the request if the response is a result.
    pub(crate) fn remembers(&mut self, memory: Box<Memory>) {
        self.memory = Some(memory);
    }

    /// The stream was resumed after the event with this id. Until there is a newer one, it can be resumed
    /// there again.
    pub(crate) fn after(mut self, last: Option<Bytes>) -> Self {
        self.last_event_id = last;
        self
    }

    /// Skips the event after which the stream was resumed, if the server repeats it.
    pub(crate) fn skip_repeat(&mut self) {
        self.skip = self.last_event_id.clone();
    }

    /// Skips progress up to this value, which the client saw on the first attempt.
    pub(crate) fn skip_progress(&mut self, told: Option<f64>) {
        self.progress = Progress {
            reached: told,
            told,
        };
    }

    /// What an error means: where the stream broke, and what is needed to resume it.
    pub(super) fn halted(&mut self, error: StreamError) -> Halt {
        let Some(on) = &self.on else {
            return Halt::Cut(error);
        };
        Halt::Broke(Box::new(Broken {
            error,
            leg: Arc::clone(&on.leg),
            last: self.last_event_id.clone(),
            progress: self.progress.reached,
            has_told: self.has_told,
            timeout: self.timeout.take(),
        }))
    }

    /// Whether dropping this would lose the response of a running request: it belongs to a request, and the
    /// upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        self.is_of_request() && self.last_event_id.is_none()
    }

    /// Whether the stream's request has its response.
    pub(crate) fn has_answered(&self) -> bool {
        self.phase == Phase::Answered
    }

    /// Reads up to the response to the request with this id. Everything read is still passed on.
    pub(crate) async fn until_answer(&mut self, id: RawId<'_>) -> Result<Message, StreamError> {
        let (mut read, mut held) = (0, 0);
        loop {
            while let Some(event) = self.ready.get(read) {
                (read, held) = (read + 1, held + event.size());
                if held > MAX_HELD_ANSWER {
                    return Err(StreamError::TooMuchBefore(MAX_HELD_ANSWER));
                }
                let message = event.data().map(Message::from_server);
                if let Some(Ok(message)) = message
                    && message.answers(id)
                {
                    return Ok(message);
                }
            }
            poll_fn(|cx| self.poll_read(cx))
                .await
                .ok_or(StreamError::NoAnswer)??;
        }
    }

    /// Reads what has arrived. `true`: that is the whole stream.
    pub(crate) async fn at_once(&mut self) -> bool {
        let (mut read, mut held) = (0, 0);
        poll_fn(|cx| {
            while held <= AT_ONCE && self.poll_stored(cx).is_ready() {
                match self.poll_read(cx) {
                    Poll::Ready(Some(Ok(()))) => {
                        held += self.ready.range(read..).map(Event::size).sum::<usize>();
                        read = self.ready.len();
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
        })
        .await
    }

    /// The events that were read and not passed on yet.
    pub(crate) fn take_ready(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.ready).into()
    }

    /// The next event as the client gets it.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, StreamError>>> {
        loop {
            ready!(self.poll_stored(cx));
            if let Some(event) = self.ready.pop_front() {
                return Poll::Ready(Some(Ok(event)));
            }
            if let Some(broke) = self.broke.take() {
                return Poll::Ready(Some(Err(broke)));
            }
            match ready!(self.poll_read(cx)) {
                Some(Ok(())) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    /// Waits for what must be stored before the client gets what was read. Stored or not, it gets that.
    fn poll_stored(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(stored) = self.stored_first.last_mut() {
            _ = ready!(Pin::new(stored).poll(cx));
            self.stored_first.pop();
        }
        Poll::Ready(())
    }

    /// Reads one event of the server's. For the client it may be none, or several.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), StreamError>>> {
        if self.phase == Phase::TimedOut {
            return Poll::Ready(None);
        }
        let Poll::Ready(next) = self.source.poll_event(cx) else {
            return self.poll_timeout(cx);
        };
        Poll::Ready(match next {
            Some(Ok(event)) if self.is_repeated(&event) => Some(Ok(())),
            Some(Ok(event)) => Some(self.show(event)),
            Some(Err(SourceError::Skipped(what))) if self.may_miss(&what) => {
                tracing::warn!("a server's message is larger than 64 MiB, and was skipped");
                Some(Ok(()))
            }
            Some(Err(SourceError::Skipped(_))) => {
                let session = self.session();
                session.iter().for_each(|session| self.lesson.miss(session));
                Some(Err(StreamError::TooLarge))
            }
            // With an event id, the server chose to end the stream: the client may resume it.
            None | Some(Err(SourceError::Broken(StreamError::Cut)))
                if self.lesson.is_of_request()
                    && self.phase == Phase::Open
                    && self.last_event_id.is_none() =>
            {
                Some(Err(StreamError::NoAnswer))
            }
            Some(Err(SourceError::Broken(error))) => Some(Err(error)),
            None => None,
        })
    }

    /// Whether no request of this stream waits for a message that was skipped.
    fn may_miss(&self, what: &Skipped) -> bool {
        let waits = self.is_of_request() && !self.has_answered();
        match what {
            Skipped::NoAnswer => true,
            Skipped::Answer(_) | Skipped::Unknown => !waits,
        }
    }

    /// Some servers begin a resumed stream with the event after which it should begin.
    fn is_repeated(&mut self, event: &Event) -> bool {
        let skip = self.skip.take();
        skip.is_some_and(|skip| event.id() == Some(&skip[..]))
    }

    fn is_of_request(&self) -> bool {
        matches!(self.rewrite.origin(), StreamOrigin::Request(_))
    }

    /// The stream's session, if it is there.
    fn session(&self) -> Option<Arc<Session>> {
        self.on.as_ref()?.session.upgrade()
    }

    /// On timeout the client gets an error for its request, and the stream ends.
    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), StreamError>>> {
        let Some(timeout) = &mut self.timeout else {
            return Poll::Pending;
        };
        let error = ready!(timeout.poll_begun(cx));
        let event = timeout.event(error);
        self.timeout = None;
        self.phase = Phase::TimedOut;
        Poll::Ready(event.map(|event| {
            self.ready.push_back(event);
            Ok(())
        }))
    }
}
