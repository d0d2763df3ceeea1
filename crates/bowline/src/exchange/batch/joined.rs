//! The answers of a batch as a stream.

use std::collections::VecDeque;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::sync::mpsc;

use crate::exchange::batch::Part;

/// The answers, in the order of arrival. Dropping this is the client's disconnect, which stops every member.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Answers that arrived before the reply became a stream.
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
