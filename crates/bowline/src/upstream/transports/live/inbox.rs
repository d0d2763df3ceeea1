//! Messages of a server that wait for their reader: a call, or the stream of a GET.
//!
//! The task that reads the channel fills an inbox, and a slow client empties it. The task waits for room, so
//! that the server is slowed down like one behind a full connection; but not for long, because other calls of
//! the session wait for the same channel. After that, notifications give way until the client reads
//! again.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::upstream::transports::error::End;

/// How many messages, and how many bytes of them, wait for a reader.
const MOST_MESSAGES: usize = 256;
const MOST_BYTES: usize = 4 << 20;
/// How long the channel is not read while a reader makes no room.
const PATIENCE: Duration = Duration::from_secs(1);

/// Messages for one reader.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    room: Notify,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Waiting>,
    bytes: usize,
    reader: Option<Waker>,
    /// Nothing follows what is here.
    over: Option<Over>,
    /// The reader made no room in time. Until it reads, nobody waits for it.
    is_stalled: bool,
}

#[derive(Debug)]
struct Waiting {
    message: Bytes,
    /// Nobody waits for an answer to it, so it may be dropped.
    may_go: bool,
}

/// Why nothing follows.
#[derive(Debug, Clone)]
pub(in crate::upstream) enum Over {
    /// The last message is the answer.
    Answered,
    /// The client cancelled the request, and the server was told.
    Cancelled,
    /// A newer stream of a GET took its place, or nobody reads any more.
    Closed,
    /// The answer came, and could not be read.
    Unreadable,
    /// The answer came, and was too large to be held.
    TooLarge,
    /// The server did not take the request.
    NotTaken(Arc<str>),
    /// The channel ended.
    Ended(Arc<End>),
}

/// What became of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Done,
    /// It took the place of another one, or had none.
    Displaced,
    /// Nobody reads any more.
    Nobody,
}

/// The beginning of an answer.
#[derive(Debug)]
pub(in crate::upstream) enum Beginning {
    /// The answer itself: nothing came before it.
    Answer(Bytes),
    /// Something else came first.
    Other,
    Over(Over),
}

// === impl Inbox ===

impl Inbox {
    /// Puts a message in, and waits for room if there is none.
    pub(super) async fn put(&self, message: &Message) -> Delivery {
        loop {
            let room = self.room.notified();
            {
                let mut state = self.state.lock();
                if state.over.is_some() {
                    return Delivery::Nobody;
                }
                if state.has_room(message.raw().len()) {
                    state.add(message);
                    return Delivery::Done;
                }
                if state.is_stalled {
                    state.displace(message);
                    return Delivery::Displaced;
                }
            }
            if tokio::time::timeout(PATIENCE, room).await.is_err() {
                self.state.lock().is_stalled = true;
            }
        }
    }

    /// Puts the answer in, which is the last message.
    pub(super) fn answer(&self, message: &Message) {
        let mut state = self.state.lock();
        if state.over.is_none() {
            state.add(message);
            state.over = Some(Over::Answered);
        }
    }

    /// Nothing more follows, for this reason.
    pub(super) fn finish(&self, over: Over) {
        let mut state = self.state.lock();
        if state.over.is_none() {
            state.over = Some(over);
            state.wake();
        }
        drop(state);
        self.room.notify_one();
    }

    /// What nobody read of it: requests of the server, which somebody else may answer.
    pub(super) fn close(&self) -> Vec<Bytes> {
        self.finish(Over::Closed);
        let mut state = self.state.lock();
        state.bytes = 0;
        let unread = std::mem::take(&mut state.messages).into_iter();
        unread
            .filter(|waiting| !waiting.may_go)
            .map(|waiting| waiting.message)
            .collect()
    }

    /// Waits until there is anything to read, or nothing will be.
    pub(super) async fn begun(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.messages.is_empty() && state.over.is_none() {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Waits until nothing more will come in.
    pub(super) async fn finished(&self) {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.over.is_none() {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Whether anything is here to read.
    pub(super) fn has_messages(&self) -> bool {
        !self.state.lock().messages.is_empty()
    }

    /// Whether the channel ended, and nothing is here to read.
    pub(super) fn has_ended(&self) -> bool {
        let state = self.state.lock();
        state.messages.is_empty() && matches!(state.over, Some(Over::Ended(_)))
    }

    /// Waits for the first message. What comes before the answer stays here, to be read as a stream.
    pub(super) async fn begin(&self) -> Beginning {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            Poll::Ready(match (state.messages.len(), state.over.clone()) {
                (1, Some(Over::Answered)) => match state.take() {
                    Some(answer) => Beginning::Answer(answer),
                    None => Beginning::Over(Over::Closed),
                },
                (0, Some(over)) => Beginning::Over(over),
                (0, None) => {
                    state.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                _ => Beginning::Other,
            })
        })
        .await
    }

    /// The next message; why there is none.
    pub(super) fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Bytes, Over>> {
        let mut state = self.state.lock();
        if let Some(message) = state.take() {
            drop(state);
            self.room.notify_one();
            return Poll::Ready(Ok(message));
        }
        match state.over.clone() {
            Some(over) => Poll::Ready(Err(over)),
            None => {
                state.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

// === impl State ===

impl State {
    fn has_room(&self, bytes: usize) -> bool {
        // A message that is larger than all room has it when nothing else is here.
        self.messages.is_empty()
            || (self.messages.len() < MOST_MESSAGES && self.bytes + bytes <= MOST_BYTES)
    }

    fn add(&mut self, message: &Message) {
        self.bytes += message.raw().len();
        self.messages.push_back(Waiting {
            message: message.raw().clone(),
            may_go: message.kind() == Kind::Notification,
        });
        self.wake();
    }

    /// Makes room by dropping what is oldest and may go; if nothing may, the message has no place.
    fn displace(&mut self, message: &Message) {
        let bytes = message.raw().len();
        while !self.has_room(bytes) {
            let Some(at) = self.messages.iter().position(|waiting| waiting.may_go) else {
                return;
            };
            if let Some(dropped) = self.messages.remove(at) {
                self.bytes -= dropped.message.len();
            }
        }
        self.add(message);
    }

    fn take(&mut self) -> Option<Bytes> {
        let waiting = self.messages.pop_front()?;
        self.bytes -= waiting.message.len();
        self.is_stalled = false;
        Some(waiting.message)
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::from_server(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    fn notification(size: usize) -> Message {
        let filling = "x".repeat(size);
        message(&format!(r#"{{"method":"n","params":"{filling}"}}"#))
    }

    fn next(inbox: &Inbox) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match inbox.poll_next(&mut cx) {
            Poll::Ready(Ok(message)) => Some(message),
            _ => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_does_not_read_costs_no_more_than_there_is_room() {
        let inbox = Inbox::default();
        let question = message(r#"{"id":1,"method":"ping"}"#);
        assert_eq!(inbox.put(&question).await, Delivery::Done);
        let mut displaced = 0;
        for _ in 0..100 {
            let delivery = inbox.put(&notification(MOST_BYTES / 10)).await;
            displaced += u32::from(delivery == Delivery::Displaced);
        }
        assert!(displaced > 80, "{displaced}");
        assert!(inbox.state.lock().bytes <= MOST_BYTES);
        assert_eq!(
            next(&inbox).as_ref(),
            Some(question.raw()),
            "a request stays"
        );
        // It reads again, so that it is waited for.
        assert!(!inbox.state.lock().is_stalled);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_comes_after_everything_and_nothing_after_it() {
        let inbox = Inbox::default();
        let (progress, answer) = (notification(1), message(r#"{"id":1,"result":{}}"#));
        inbox.put(&progress).await;
        assert!(matches!(inbox.begin().await, Beginning::Other));
        inbox.answer(&answer);
        inbox.answer(&answer);
        assert_eq!(inbox.put(&progress).await, Delivery::Nobody);
        assert_eq!(next(&inbox).as_ref(), Some(progress.raw()));
        assert_eq!(next(&inbox).as_ref(), Some(answer.raw()));
        assert_eq!(next(&inbox), None);
    }

    #[tokio::test]
    async fn an_answer_alone_is_no_stream() {
        let inbox = Inbox::default();
        inbox.answer(&message(r#"{"id":1,"result":{}}"#));
        assert!(matches!(inbox.begin().await, Beginning::Answer(_)));
    }
}
