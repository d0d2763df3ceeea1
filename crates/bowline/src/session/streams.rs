//! A stream in flight: read by whoever holds it, and ended by whoever must.
//!
//! The reader may be a client that does not read (its connection is full), so ending a stream
//! cannot wait for the reader: [`LiveStream::end`] drops the upstream's side at once and the reader
//! finds the end whenever it looks.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use parking_lot::Mutex;

use super::Born;
use crate::leg::{EventRelay, Relay, Rescue, StreamError};
use crate::upstream::UpstreamError;

/// How often one stream is gone on with, whatever happens.
const MAX_RESCUES: u8 = 100;

/// Streams of a session that are told apart: one of each at a time.
pub(crate) type StreamKey = Born;

/// One stream towards a client.
#[derive(Debug)]
pub(crate) struct LiveStream(Mutex<State>);

#[derive(Debug)]
struct State {
    source: Source,
    reader: Option<Waker>,
    /// How to go on if the source breaks; gone once nobody is there to go on for.
    rescue: Option<Box<Rescue>>,
    /// How often that is tried.
    rescues: u8,
    /// What Bowline itself has to say here.
    unsaid: Option<Bytes>,
}

/// Where a stream's bytes come from.
pub(crate) enum Source {
    /// The upstream has not answered yet.
    Opening(Opening),
    /// An upstream's answer.
    Relay(Relay),
    /// Nobody: the stream is held open for what Bowline itself has to say.
    Silent,
    /// Something of our own, and then the rest.
    Saying(Bytes, Box<Self>),
    /// One more event.
    Last(Bytes),
    /// Over, at a place where a stream may end.
    Ended,
    /// Over, in the middle of something: the client must not take it for whole.
    Cut,
}

/// An upstream's side of a stream on its way.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Source, UpstreamError>> + Send>>;

// === impl LiveStream ===

impl LiveStream {
    pub(crate) fn new(source: Source, rescue: Option<Box<Rescue>>) -> Self {
        Self(Mutex::new(State {
            source,
            reader: None,
            rescue,
            rescues: MAX_RESCUES,
            unsaid: None,
        }))
    }

    /// The next bytes: whole events, or frames of a body that is not events.
    pub(crate) fn poll_next(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let mut state = self.0.lock();
        loop {
            if let Some(unsaid) = state.unsaid.take() {
                return Poll::Ready(Some(Ok(unsaid)));
            }
            if let Some(news) = state.rescue.as_ref().and_then(|rescue| rescue.news()) {
                return Poll::Ready(Some(Ok(news)));
            }
            let next = state.source.poll_next(cx);
            match &next {
                Poll::Pending => state.reader = Some(cx.waker().clone()),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_))) => match state.go_on() {
                    Some(source) => {
                        state.source = source;
                        continue;
                    }
                    None => state.source = Source::Ended,
                },
                Poll::Ready(None) => state.source = Source::Ended,
            }
            return next;
        }
    }

    /// Says something of our own between two events. `false`: nobody would hear it.
    pub(crate) fn say(&self, event: &Bytes) -> bool {
        let reader = {
            let mut state = self.0.lock();
            // Without a way to go on there is no client, or it is not a stream of events.
            let is_over = matches!(state.source, Source::Ended | Source::Cut | Source::Last(_));
            if is_over || state.rescue.is_none() {
                return false;
            }
            let said = state.unsaid.take().unwrap_or_default();
            state.unsaid = Some([&said[..], event].concat().into());
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    /// Reads the stream of a GET anew, from where the session is now.
    pub(crate) fn restart(&self) {
        let (old, reader) = {
            let mut state = self.0.lock();
            let opening = match (&state.source, &state.rescue) {
                (Source::Ended | Source::Cut, _) | (_, None) => None,
                (_, Some(rescue)) if rescue.is_standalone() => rescue.begin(None),
                (_, Some(_)) => None,
            };
            let Some(opening) = opening else { return };
            let old = std::mem::replace(&mut state.source, Source::Opening(opening));
            (old, state.reader.take())
        };
        drop(old);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// The client has left: what breaks now stays broken.
    pub(crate) fn give_up_rescue(&self) {
        let rescue = self.0.lock().rescue.take();
        drop(rescue);
    }

    /// Waits until the upstream has answered, well or badly.
    pub(crate) async fn opened(&self) -> Result<(), UpstreamError> {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            let Source::Opening(opening) = &mut state.source else {
                return Poll::Ready(Ok(()));
            };
            let (source, opened) = match opening.as_mut().poll(cx) {
                Poll::Ready(Ok(source)) => (source, Ok(())),
                Poll::Ready(Err(error)) => (Source::Ended, Err(error)),
                Poll::Pending => {
                    // A recovery that this very stream waits for opens it anew.
                    state.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            };
            state.source = source;
            Poll::Ready(opened)
        })
        .await
    }

    /// Ends the stream and closes what it reads from, now.
    pub(crate) fn end(&self) {
        let (source, reader) = {
            let mut state = self.0.lock();
            let end = state.source.end();
            (
                std::mem::replace(&mut state.source, end),
                state.reader.take(),
            )
        };
        drop(source);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Whether the stream must be read to its end although its client left: it belongs to a
    /// request that runs, and could not be resumed.
    pub(crate) fn must_be_read_out(&self) -> bool {
        self.0.lock().source.must_be_read_out()
    }
}

// === impl State ===

impl State {
    /// What to read instead of a source that broke.
    fn go_on(&mut self) -> Option<Source> {
        let broken = match &self.source {
            Source::Relay(Relay::Events(events)) if events.has_answered() => {
                return Some(Source::Ended);
            }
            Source::Relay(Relay::Events(events)) => events.broken(),
            _ => return None,
        };
        let rescue = self.rescue.as_ref()?;
        self.rescues = self.rescues.checked_sub(1)?;
        Some(Source::Opening(rescue.begin(Some(broken))?))
    }
}

// === impl Source ===

impl Source {
    /// The same, without the event of this id if it begins with it.
    pub(crate) fn after(self, last: Option<http::HeaderValue>) -> Self {
        let last = last.map(|last| Bytes::copy_from_slice(last.as_bytes()));
        self.with_events(|events| events.after(last))
    }

    /// The same, without progress up to what was told already.
    pub(crate) fn beyond(self, progress: Option<f64>) -> Self {
        self.with_events(|events| events.beyond(progress))
    }

    fn with_events(self, change: impl FnOnce(EventRelay) -> EventRelay) -> Self {
        match self {
            Self::Relay(Relay::Events(events)) => {
                Self::Relay(Relay::Events(Box::new(change(*events))))
            }
            other => other,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            match self {
                Self::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(opened) => *self = opened,
                    Err(_) => return Poll::Ready(Some(Err(StreamError::NotOpened))),
                },
                Self::Relay(relay) => return relay.poll_next(cx),
                Self::Silent => return Poll::Pending,
                Self::Saying(event, rest) => {
                    let event = std::mem::take(event);
                    *self = std::mem::replace(rest, Self::Ended);
                    return Poll::Ready(Some(Ok(event)));
                }
                Self::Last(event) => {
                    let event = std::mem::take(event);
                    *self = Self::Ended;
                    return Poll::Ready(Some(Ok(event)));
                }
                Self::Ended => return Poll::Ready(None),
                Self::Cut => return Poll::Ready(Some(Err(StreamError::Cut))),
            }
        }
    }

    fn must_be_read_out(&self) -> bool {
        match self {
            Self::Relay(relay) => relay.must_be_read_out(),
            Self::Saying(_, rest) => rest.must_be_read_out(),
            Self::Opening(_) | Self::Silent | Self::Last(_) | Self::Ended | Self::Cut => false,
        }
    }

    /// What is left of this when it is ended from outside: events end between events, other
    /// bodies only ever in the middle.
    fn end(&self) -> Self {
        match self {
            Self::Relay(Relay::Frames(_)) | Self::Cut => Self::Cut,
            Self::Saying(_, rest) => rest.end(),
            Self::Relay(_) | Self::Opening(_) | Self::Silent | Self::Last(_) | Self::Ended => {
                Self::Ended
            }
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opening(_) => "Opening",
            Self::Relay(_) => "Relay",
            Self::Silent => "Silent",
            Self::Saying(..) => "Saying",
            Self::Last(_) => "Last",
            Self::Ended => "Ended",
            Self::Cut => "Cut",
        })
    }
}
