//! A stream to a client, which can be ended while another task reads it.
//!
//! A client may not read (its connection is full), so ending a stream cannot wait for the reader:
//! [`LiveStream::end`] drops the upstream's side at once, and the reader sees the end at its next poll.

pub(crate) mod events;
mod frames;
pub(crate) mod outlet;
pub(crate) mod relay;
pub(crate) mod rescue;
mod shown;
mod source;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use bowline_wire::sse::Event;
use parking_lot::Mutex;

use self::relay::Piece;
use self::source::Next;
pub(crate) use self::source::Source;
use crate::exchange::stream::relay::Relay;
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
    /// The next source, set while the reader had the current one out.
    instead: Option<Source>,
    reader: Option<Waker>,
    /// How to resume if the source breaks; `None` after the client left.
    rescue: Option<Box<Rescue>>,
    /// Events from Bowline itself.
    unsaid: VecDeque<Event>,
    /// The client has disconnected.
    has_left: bool,
}

// === impl LiveStream ===

impl LiveStream {
    pub(crate) fn new(source: Source, rescue: Option<Box<Rescue>>) -> Self {
        Self(Mutex::new(State {
            source,
            instead: None,
            reader: None,
            rescue,
            unsaid: VecDeque::new(),
            has_left: false,
        }))
    }

    /// The next piece.
    pub(crate) fn poll_next(&self, cx: &mut Context<'_>) -> Next {
        loop {
            let mut source = {
                let mut state = self.0.lock();
                if let Some(said) = state.take_said() {
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

    /// The client has disconnected: a break is not repaired any more, and nothing more is sent.
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

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        matches!(self.0.lock().source, Source::EndedForNow)
    }

    /// Waits until the upstream has answered, with success or an error.
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
                // A recovery that this stream waits for restarts it.
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

    /// Whether the stream must be read to its end after the client's disconnect: it belongs to a request that
    /// runs, and cannot be resumed.
    pub(crate) fn must_be_read_out(&self) -> bool {
        self.0.lock().source.must_be_read_out()
    }
}

impl ClientStream for LiveStream {
    fn say(&self, event: &Event) -> bool {
        let reader = {
            let mut state = self.0.lock();
            // Without a rescue there is no client, or this is not an event stream.
            if state.is_over() || state.rescue.is_none() {
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
    /// The next event from Bowline itself.
    fn take_said(&mut self) -> Option<Event> {
        if self.unsaid.is_empty()
            && let Some(rescue) = &self.rescue
        {
            self.unsaid = rescue.news().into();
        }
        self.unsaid.pop_front()
    }

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
        mut source: Source,
        next: Next,
        cx: &mut Context<'_>,
    ) -> (Option<Next>, Option<Source>) {
        if let Source::Rescuable(relay, rescue) = source {
            source = Source::Relay(relay);
            self.rescue = Some(rescue).filter(|_| !self.has_left);
        }
        if let Some(instead) = self.instead.take() {
            // What was read goes to the client; an end or a break no longer matters.
            self.source = instead;
            let next = Some(next).filter(|next| matches!(next, Poll::Ready(Some(Ok(_)))));
            return (next, Some(source));
        }
        let (next, source, over) = match next {
            Poll::Pending if !self.unsaid.is_empty() => (None, source, None),
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

    /// The next source after a break; `None`: the client sees the break.
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

#[cfg(test)]
mod tests;
