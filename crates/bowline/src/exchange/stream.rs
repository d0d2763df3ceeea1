//! A stream to a client, which can be ended while another task reads it.
//!
//! A client may not read (its connection is full), so ending a stream cannot wait for the reader:
//! [`LiveStream::end`] drops the upstream's side at once, and the reader sees the end at its next poll. What to do
//! when that side breaks is the reader's business: a stream says that it has halted, and goes on with what the
//! reader gives it.

pub(crate) mod events;
mod frames;
pub(crate) mod relay;
mod source;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bowline_wire::sse::Event;
use parking_lot::Mutex;

pub(crate) use self::events::Broken;
use self::relay::Piece;
use self::source::Next;
pub(crate) use self::source::Source;
use crate::session::streams::ClientStream;
pub(crate) use crate::upstream::StreamError;
use crate::upstream::UpstreamError;

/// One stream towards a client.
#[derive(Debug)]
pub(crate) struct LiveStream(Mutex<State>);

#[derive(Debug)]
struct State {
    source: Source,
    /// The next source, set while the reader had the current one out.
    instead: Option<Source>,
    reader: Option<Waker>,
    /// Events from Bowline itself.
    unsaid: VecDeque<Event>,
    /// The client has disconnected.
    has_left: bool,
}

/// Why a stream has no more pieces.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The upstream's side broke. The stream goes on if its reader has another source.
    Broke(Box<Broken>),
    /// The same, because the session has another generation.
    Restart,
    /// The client must not take it for complete.
    Cut(StreamError),
}

/// Why a stream is not open.
#[derive(Debug)]
pub(crate) enum NotOpen {
    /// The session has another generation, on which the reader opens it.
    Restart,
    Failed(UpstreamError),
}

// === impl LiveStream ===

impl LiveStream {
    pub(crate) fn new(source: impl Into<Source>) -> Self {
        Self(Mutex::new(State {
            source: source.into(),
            instead: None,
            reader: None,
            unsaid: VecDeque::new(),
            has_left: false,
        }))
    }

    /// The next piece.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Next {
        loop {
            let mut source = {
                let mut state = self.0.lock();
                if let Some(said) = state.unsaid.pop_front() {
                    return Poll::Ready(Some(Ok(Piece::Event(said))));
                }
                state.source.take_out()
            };
            // Polled without the lock, because the source may send an event on this stream.
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

    /// The next event from Bowline itself.
    pub(crate) fn take_said(&self) -> Option<Event> {
        self.0.lock().unsaid.pop_front()
    }

    /// Goes on with this source after a halt, unless the stream was ended or restarted meanwhile.
    pub(crate) fn resume(&self, source: Source) {
        let dropped = {
            let mut state = self.0.lock();
            match state.source {
                Source::Halted => std::mem::replace(&mut state.source, source),
                _ => source,
            }
        };
        drop(dropped);
    }

    /// The client has disconnected: nothing more is sent.
    pub(crate) fn leave(&self) {
        let mut state = self.0.lock();
        if let Source::Opening(_, Some(sent)) = &state.source {
            sent.leave();
        }
        state.has_left = true;
    }

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        matches!(self.0.lock().source, Source::EndedForNow)
    }

    /// Ready when the upstream has answered, with success or an error.
    pub(crate) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<Result<(), NotOpen>> {
        loop {
            let mut source = {
                let mut state = self.0.lock();
                match state.source {
                    Source::Opening(..) => state.source.take_out(),
                    Source::Restart => {
                        state.source = Source::Halted;
                        return Poll::Ready(Err(NotOpen::Restart));
                    }
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
            // A recovery that this stream waits for restarts it.
            state.reader = Some(cx.waker().clone());
            let replaced = std::mem::replace(&mut state.source, instead.unwrap_or(source));
            drop(state);
            drop(replaced);
            if !is_replaced {
                return opened.map_err(NotOpen::Failed);
            }
        }
    }

    /// Whether the stream must be read to its end after the client's disconnect: it belongs to a request that
    /// runs, and cannot be resumed.
    pub(crate) fn must_be_read_out(&self) -> bool {
        self.0.lock().source.must_be_read_out()
    }

    /// Changes the source from outside, if there is one for this state.
    fn change(&self, source: impl FnOnce(&State) -> Option<Source>) {
        let (old, reader) = {
            let mut state = self.0.lock();
            let Some(source) = source(&state) else {
                return;
            };
            (state.replace(source), state.reader.take())
        };
        drop(old);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl ClientStream for LiveStream {
    fn say(&self, event: &Event) -> bool {
        let reader = {
            let mut state = self.0.lock();
            if state.is_over() || state.has_left || !state.source.is_events() {
                return false;
            }
            state.unsaid.push_back(event.clone());
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
        true
    }

    fn restart(&self) {
        self.change(|state| (!state.is_over() && !state.has_left).then_some(Source::Restart));
    }

    fn end(&self) {
        self.change(|state| Some(state.source.end()));
    }
}

// === impl State ===

impl State {
    fn is_over(&self) -> bool {
        self.instead.as_ref().unwrap_or(&self.source).is_over()
    }

    /// Changes the source. The caller drops the returned source after releasing the lock.
    fn replace(&mut self, source: Source) -> Option<Source> {
        match self.source {
            Source::Out { .. } => self.instead.replace(source),
            _ => Some(std::mem::replace(&mut self.source, source)),
        }
    }

    /// Puts the source back after a poll. Returns what the reader gets (`None`: it polls again) and the
    /// source to drop.
    fn put_back(
        &mut self,
        source: Source,
        next: Next,
        cx: &mut Context<'_>,
    ) -> (Option<Next>, Option<Source>) {
        if let Some(instead) = self.instead.take() {
            // What was read goes to the client; an end or a break no longer matters.
            self.source = instead;
            let next = Some(next).filter(|next| matches!(next, Poll::Ready(Some(Ok(_)))));
            return (next, Some(source));
        }
        let after = match &next {
            Poll::Pending if !self.unsaid.is_empty() => {
                self.source = source;
                return (None, None);
            }
            Poll::Pending => {
                self.reader = Some(cx.waker().clone());
                None
            }
            Poll::Ready(Some(Ok(_))) => None,
            Poll::Ready(None | Some(Err(Halt::Cut(_)))) => Some(Source::Ended),
            Poll::Ready(Some(Err(Halt::Broke(_) | Halt::Restart))) => Some(Source::Halted),
        };
        match after {
            None => {
                self.source = source;
                (Some(next), None)
            }
            Some(after) => {
                self.source = after;
                (Some(next), Some(source))
            }
        }
    }
}

#[cfg(test)]
mod tests;
