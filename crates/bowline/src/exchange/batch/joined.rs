//! Answers of a batch as they come.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::exchange::batch::Part;

/// The answers. Dropping it is the client's disconnect, which every member notices.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Answers that came before one of them streamed.
    held: VecDeque<Bytes>,
    parts: mpsc::Receiver<Part>,
}

impl Joined {
    pub(crate) fn new(held: Vec<Bytes>, parts: mpsc::Receiver<Part>) -> Self {
        Self {
            held: held.into(),
            parts,
        }
    }

    /// The next message; `None` when every member has ended.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
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
