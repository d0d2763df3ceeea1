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
use crate::leg::{Relay, StreamError};
use crate::upstream::UpstreamError;

/// Streams of a session that are told apart: one of each at a time.
pub(crate) type StreamKey = Born;

/// One stream towards a client.
#[derive(Debug)]
pub(crate) struct LiveStream(Mutex<State>);

#[derive(Debug)]
struct State {
    source: Source,
    reader: Option<Waker>,
}

/// Where a stream's bytes come from.
pub(crate) enum Source {
    /// The upstream has not answered yet.
    Opening(Opening),
    /// An upstream's answer.
    Relay(Box<Relay>),
    /// Nobody: the stream is held open for what Bowline itself has to say.
    Silent,
    /// Over, at a place where a stream may end.
    Ended,
    /// Over, in the middle of something: the client must not take it for whole.
    Cut,
}

/// An upstream's side of a stream on its way.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Source, UpstreamError>> + Send>>;

// === impl LiveStream ===

impl LiveStream {
    pub(crate) fn new(source: Source) -> Self {
        Self(Mutex::new(State {
            source,
            reader: None,
        }))
    }

    /// The next bytes: whole events, or frames of a body that is not events.
    pub(crate) fn poll_next(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let mut state = self.0.lock();
        let next = state.source.poll_next(cx);
        match &next {
            Poll::Pending => state.reader = Some(cx.waker().clone()),
            Poll::Ready(Some(Ok(_))) => {}
            Poll::Ready(None | Some(Err(_))) => state.source = Source::Ended,
        }
        next
    }

    /// Waits until the upstream has answered, well or badly.
    pub(crate) async fn opened(&self) -> Result<(), UpstreamError> {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            let Source::Opening(opening) = &mut state.source else {
                return Poll::Ready(Ok(()));
            };
            let (source, opened) = match ready!(opening.as_mut().poll(cx)) {
                Ok(source) => (source, Ok(())),
                Err(error) => (Source::Ended, Err(error)),
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
        match &self.0.lock().source {
            Source::Relay(relay) => relay.must_be_read_out(),
            Source::Opening(_) | Source::Silent | Source::Ended | Source::Cut => false,
        }
    }
}

// === impl Source ===

impl Source {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            match self {
                Self::Opening(opening) => match ready!(opening.as_mut().poll(cx)) {
                    Ok(opened) => *self = opened,
                    Err(_) => return Poll::Ready(Some(Err(StreamError::NotOpened))),
                },
                Self::Relay(relay) => return relay.poll_next(cx),
                Self::Silent => return Poll::Pending,
                Self::Ended => return Poll::Ready(None),
                Self::Cut => return Poll::Ready(Some(Err(StreamError::Cut))),
            }
        }
    }

    /// What is left of this when it is ended from outside: events end between events, other
    /// bodies only ever in the middle.
    fn end(&self) -> Self {
        match self {
            Self::Relay(relay) if matches!(**relay, Relay::Frames(_)) => Self::Cut,
            Self::Cut => Self::Cut,
            Self::Relay(_) | Self::Opening(_) | Self::Silent | Self::Ended => Self::Ended,
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opening(_) => "Opening",
            Self::Relay(_) => "Relay",
            Self::Silent => "Silent",
            Self::Ended => "Ended",
            Self::Cut => "Cut",
        })
    }
}
