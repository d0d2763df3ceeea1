//! Answers of a batch as one stream of events, as they come.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bowline_wire::sse::event_of;
use bytes::Bytes;
use tokio::sync::mpsc;

use super::batch::Part;
use super::reply::Heartbeat;

/// The stream. Dropping it is the client's disconnect, which every member notices.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Answers that came before one of them streamed.
    held: VecDeque<Bytes>,
    parts: mpsc::Receiver<Part>,
    heartbeat: Heartbeat,
}

impl Joined {
    pub(super) fn new(held: Vec<Bytes>, parts: mpsc::Receiver<Part>) -> Self {
        Self {
            held: held.into(),
            parts,
            heartbeat: Heartbeat::new(),
        }
    }

    /// The next event, or a sign of life; `None` when every member has ended.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        match self.poll_message(cx) {
            Poll::Ready(message) => {
                self.heartbeat.put_off();
                Poll::Ready(message.map(|message| event_of(&message)))
            }
            Poll::Pending => self.heartbeat.poll(cx).map(Some),
        }
    }

    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(held) = self.held.pop_front() {
            return Poll::Ready(Some(held));
        }
        loop {
            match ready!(self.parts.poll_recv(cx)) {
                Some(Part::Message(message)) => return Poll::Ready(Some(message)),
                Some(Part::Streams | Part::Failed(_)) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}
