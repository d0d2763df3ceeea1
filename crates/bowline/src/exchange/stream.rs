//! A stream in flight: read by whoever holds it, and ended by whoever must.
//!
//! The reader may be a client that does not read (its connection is full), so ending a stream
//! cannot wait for the reader: [`LiveStream::end`] drops the upstream's side at once and the reader
//! finds the end whenever it looks.

pub(crate) mod events;
mod frames;
pub(crate) mod outlet;
pub(crate) mod relay;
pub(crate) mod rescue;
mod shown;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bowline_egress::Sent;
use bytes::Bytes;
use parking_lot::Mutex;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::stream::relay::{EventRelay, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::session::streams::ClientStream;
pub(crate) use crate::upstream::StreamError;
use crate::upstream::UpstreamError;

/// One stream towards a client.
#[derive(Debug)]
pub(crate) struct LiveStream(Mutex<State>);

#[derive(Debug)]
struct State {
    source: Source,
    /// What is read instead of the source, decided while the reader had that out.
    instead: Option<Source>,
    reader: Option<Waker>,
    /// How to go on if the source breaks; gone once nobody is there to go on for.
    rescue: Option<Box<Rescue>>,
    /// What Bowline itself has to say here.
    unsaid: Option<Bytes>,
    /// Nobody is there to go on for.
    has_left: bool,
}

/// Where a stream's bytes come from.
pub(crate) enum Source {
    /// The upstream has not answered yet; where it was sent something that goes on when the client
    /// leaves, whether that has begun.
    Opening(Opening, Option<Sent>),
    /// An upstream's answer.
    Relay(Relay),
    /// The same, and how to go on if it breaks: from now on the stream's own.
    Rescuable(Relay, Box<Rescue>),
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
    /// In the reader's hands, while it is polled. Whether ending it cuts it.
    Out { is_cut: bool },
}

type Next = Poll<Option<Result<Bytes, StreamError>>>;

/// An upstream's side of a stream on its way.
type Opening = Pin<Box<dyn Future<Output = Result<Source, UpstreamError>> + Send>>;

// === impl LiveStream ===

impl LiveStream {
    pub(crate) fn new(source: Source, rescue: Option<Box<Rescue>>) -> Self {
        Self(Mutex::new(State {
            source,
            instead: None,
            reader: None,
            rescue,
            unsaid: None,
            has_left: false,
        }))
    }

    /// The next bytes: whole events, or frames of a body that is not events.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Next {
        loop {
            let mut source = {
                let mut state = self.0.lock();
                if let Some(said) = state.take_said() {
                    return Poll::Ready(Some(Ok(said)));
                }
                state.source.take_out()
            };
            // Without the lock: what is polled may have something to say on this very stream.
            let next = source.poll_next(cx);
            let mut state = self.0.lock();
            let (next, replaced) = state.put_back(source, next, cx);
            drop(state);
            drop(replaced);
            if let Some(next) = next {
                return next;
            }
        }
    }

    /// The client has left: what breaks now stays broken, and nothing more is sent.
    pub(crate) fn leave(&self) {
        let rescue = {
            let mut state = self.0.lock();
            if let Source::Opening(_, Some(sent)) = &state.source {
                sent.leave();
            }
            state.has_left = true;
            state.rescue.take()
        };
        drop(rescue);
    }

    /// Waits until the upstream has answered, well or badly.
    pub(crate) async fn opened(&self) -> Result<(), UpstreamError> {
        std::future::poll_fn(|cx| {
            loop {
                let mut source = {
                    let mut state = self.0.lock();
                    match state.source {
                        Source::Opening(..) => state.source.take_out(),
                        _ => return Poll::Ready(Ok(())),
                    }
                };
                let opened = source.poll_open(cx);
                if matches!(opened, Poll::Ready(Err(_))) {
                    source = Source::Ended;
                }
                let mut state = self.0.lock();
                let instead = state.instead.take();
                let is_replaced = instead.is_some();
                // A recovery that this very stream waits for opens it anew.
                state.reader = Some(cx.waker().clone());
                let replaced = std::mem::replace(&mut state.source, instead.unwrap_or(source));
                drop(state);
                drop(replaced);
                if !is_replaced {
                    return opened;
                }
            }
        })
        .await
    }

    /// Whether the stream must be read to its end although its client left: it belongs to a
    /// request that runs, and could not be resumed.
    pub(crate) fn must_be_read_out(&self) -> bool {
        self.0.lock().source.must_be_read_out()
    }
}

impl ClientStream for LiveStream {
    fn say(&self, event: &Bytes) -> bool {
        let reader = {
            let mut state = self.0.lock();
            // Without a way to go on there is no client, or it is not a stream of events.
            if state.is_over() || state.rescue.is_none() {
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

    fn restart(&self) {
        let (old, reader) = {
            let mut state = self.0.lock();
            if state.is_over() {
                return;
            }
            let rescue = state.rescue.as_mut();
            let Some(source) = rescue.and_then(|rescue| rescue.restart()) else {
                return;
            };
            (state.replace(source), state.reader.take())
        };
        drop(old);
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn end(&self) {
        let (source, reader) = {
            let mut state = self.0.lock();
            let end = state.source.end();
            (state.replace(end), state.reader.take())
        };
        drop(source);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

// === impl State ===

impl State {
    /// What Bowline itself has to say next.
    fn take_said(&mut self) -> Option<Bytes> {
        let unsaid = self.unsaid.take();
        unsaid.or_else(|| self.rescue.as_ref()?.news())
    }

    fn is_over(&self) -> bool {
        let source = self.instead.as_ref().unwrap_or(&self.source);
        matches!(source, Source::Ended | Source::Cut | Source::Last(_))
    }

    /// Reads from somewhere else. What is not needed any more is dropped without the lock.
    fn replace(&mut self, source: Source) -> Option<Source> {
        match self.source {
            Source::Out { .. } => self.instead.replace(source),
            _ => Some(std::mem::replace(&mut self.source, source)),
        }
    }

    /// The source is back with what it had: what the reader gets, or nothing where it has to look
    /// again; and what is not needed any more.
    fn put_back(
        &mut self,
        mut source: Source,
        next: Next,
        cx: &mut Context<'_>,
    ) -> (Option<Next>, Option<Source>) {
        if let Source::Rescuable(relay, rescue) = source {
            source = Source::Relay(relay);
            self.rescue = Some(rescue).filter(|_| !self.has_left);
        }
        if let Some(instead) = self.instead.take() {
            // What was read is still the client's; an end or a break no longer matters.
            self.source = instead;
            let next = Some(next).filter(|next| matches!(next, Poll::Ready(Some(Ok(_)))));
            return (next, Some(source));
        }
        let (next, source, over) = match next {
            Poll::Pending if self.unsaid.is_some() => (None, source, None),
            Poll::Pending => {
                self.reader = Some(cx.waker().clone());
                (Some(Poll::Pending), source, None)
            }
            Poll::Ready(Some(Ok(_))) => (Some(next), source, None),
            Poll::Ready(None) => (Some(next), Source::Ended, Some(source)),
            Poll::Ready(Some(Err(error))) => match self.go_on(&mut source, &error) {
                Some(rest) => (None, rest, Some(source)),
                None => {
                    let cut = Poll::Ready(Some(Err(error)));
                    (Some(cut), Source::Ended, Some(source))
                }
            },
        };
        self.source = source;
        (next, over)
    }

    /// What to read instead of a source that broke; `None`: the client sees it break.
    fn go_on(&mut self, broken: &mut Source, error: &StreamError) -> Option<Source> {
        match broken {
            Source::Relay(Relay::Events(events)) if events.has_answered() => Some(Source::Ended),
            Source::Relay(Relay::Events(events)) => {
                self.rescue.as_mut()?.go_on(events.broken(), error)
            }
            _ => None,
        }
    }
}

// === impl Source ===

impl Source {
    /// An upstream's side that is on its way.
    pub(crate) fn opening(
        opening: impl Future<Output = Result<Self, UpstreamError>> + Send + 'static,
    ) -> Self {
        Self::Opening(Box::pin(opening), None)
    }

    /// The same, where something is sent that goes on when the client leaves.
    pub(crate) fn sending(
        opening: impl Future<Output = Result<Self, UpstreamError>> + Send + 'static,
        sent: Sent,
    ) -> Self {
        Self::Opening(Box::pin(opening), Some(sent))
    }

    /// For the reader, who puts it back.
    fn take_out(&mut self) -> Self {
        let is_cut = matches!(self.end(), Self::Cut);
        std::mem::replace(self, Self::Out { is_cut })
    }

    /// The same, without the event after which it was resumed.
    pub(crate) fn without_repeat(self) -> Self {
        self.with_events(EventRelay::without_repeat)
    }

    /// The same, without progress up to what was told already.
    pub(crate) fn beyond(self, progress: Option<f64>) -> Self {
        self.with_events(|events| events.beyond(progress))
    }

    /// The same, read as long as its call has patience.
    pub(crate) fn with_timeout(self, timeout: Option<CallTimeout>) -> Self {
        self.with_events(|events| events.with_timeout(timeout))
    }

    fn with_events(self, change: impl FnOnce(EventRelay) -> EventRelay) -> Self {
        match self {
            Self::Relay(Relay::Events(events)) => {
                Self::Relay(Relay::Events(Box::new(change(*events))))
            }
            other => other,
        }
    }

    /// Waits until the upstream has answered.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        if let Self::Opening(opening, _) = self {
            *self = ready!(opening.as_mut().poll(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            match self {
                Self::Opening(..) => {
                    if ready!(self.poll_open(cx)).is_err() {
                        return Poll::Ready(Some(Err(StreamError::NotOpened)));
                    }
                }
                Self::Relay(relay) | Self::Rescuable(relay, _) => return relay.poll_next(cx),
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
                Self::Ended | Self::Out { .. } => return Poll::Ready(None),
                Self::Cut => return Poll::Ready(Some(Err(StreamError::Cut))),
            }
        }
    }

    fn must_be_read_out(&self) -> bool {
        match self {
            Self::Relay(relay) | Self::Rescuable(relay, _) => relay.must_be_read_out(),
            Self::Saying(_, rest) => rest.must_be_read_out(),
            Self::Opening(_, sent) => sent.as_ref().is_some_and(Sent::get),
            Self::Silent | Self::Last(_) | Self::Ended | Self::Cut | Self::Out { .. } => false,
        }
    }

    /// What is left of this when it is ended from outside: events end between events, other
    /// bodies only ever in the middle.
    fn end(&self) -> Self {
        match self {
            Self::Relay(Relay::Frames(_))
            | Self::Rescuable(Relay::Frames(_), _)
            | Self::Cut
            | Self::Out { is_cut: true } => Self::Cut,
            Self::Saying(_, rest) => rest.end(),
            Self::Relay(_)
            | Self::Rescuable(..)
            | Self::Opening(..)
            | Self::Silent
            | Self::Last(_)
            | Self::Ended
            | Self::Out { is_cut: false } => Self::Ended,
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opening(..) => "Opening",
            Self::Relay(_) => "Relay",
            Self::Rescuable(..) => "Rescuable",
            Self::Silent => "Silent",
            Self::Saying(..) => "Saying",
            Self::Last(_) => "Last",
            Self::Ended => "Ended",
            Self::Cut => "Cut",
            Self::Out { .. } => "Out",
        })
    }
}

#[cfg(test)]
mod tests;
