//! Messages on their way to a client that gets everything as one sequence, and what waits for it.
//!
//! Whoever has a message waits for a place. While much waits, nothing more is read from servers, so a client that
//! does not read holds up its own calls and nobody else's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

/// How many messages wait for a client that does not read. After that, whoever sends one waits.
const MAX_WAITING: usize = 16;

/// How many bytes wait before streams of servers are not read any further.
const MUCH: usize = 4 << 20;

/// How often it is looked at whether a client has taken anything, before it counts as one that does not.
const LOOKS: u32 = 6;

/// How long the end of the sequence may wait for a client that does not read.
const LAST_MESSAGE: Duration = Duration::from_secs(1);

/// Where tasks send messages for the client.
#[derive(Debug, Clone)]
pub(in crate::front) struct Outgoing {
    messages: mpsc::Sender<Option<Waiting>>,
    backlog: Arc<Backlog>,
}

/// The messages for the client, in their order. `None` is the end.
#[derive(Debug)]
pub(in crate::front) struct Messages(pub(in crate::front) mpsc::Receiver<Option<Waiting>>);

/// A message that the client has not got yet, with all that wait for a place.
#[derive(Debug)]
pub(in crate::front) struct Waiting {
    pub(in crate::front) message: Bytes,
    backlog: Arc<Backlog>,
}

/// What the client has not got yet.
#[derive(Debug)]
struct Backlog {
    bytes: watch::Sender<usize>,
    /// How many messages the client got, or nobody sends any more.
    gone: AtomicU64,
}

// === impl Outgoing ===

impl Outgoing {
    pub(in crate::front) fn channel() -> (Self, Messages) {
        let (sender, messages) = mpsc::channel(MAX_WAITING);
        let backlog = Backlog {
            bytes: watch::Sender::new(0),
            gone: AtomicU64::new(0),
        };
        let outgoing = Self {
            messages: sender,
            backlog: Arc::new(backlog),
        };
        (outgoing, Messages(messages))
    }

    /// Sends one message, or a batch of them. If the client has left, it is dropped.
    pub(in crate::front) async fn send(&self, message: Bytes) {
        let bytes = message.len();
        self.backlog.bytes.send_modify(|all| *all += bytes);
        let waiting = Waiting {
            message,
            backlog: Arc::clone(&self.backlog),
        };
        drop(self.messages.send(Some(waiting)).await);
    }

    /// Lets this go on, which brings messages for the client, for as long as not much waits.
    pub(super) async fn paced<T>(&self, next: impl Future<Output = T>) -> T {
        let mut next = std::pin::pin!(next);
        loop {
            self.backlog.until(|bytes| bytes < MUCH).await;
            tokio::select! {
                biased;
                () = self.backlog.until(|bytes| bytes >= MUCH) => {}
                next = &mut next => return next,
            }
        }
    }

    /// Waits until much has waited for so long, and the client has taken nothing.
    pub(in crate::front) async fn unread_for(&self, time: Duration) {
        let backlog = &self.backlog;
        let (mut looks, mut gone) = (0, 0);
        while looks < LOOKS {
            backlog.until(|bytes| bytes >= MUCH).await;
            tokio::time::sleep(time / LOOKS).await;
            let now = backlog.gone.load(Ordering::Relaxed);
            let is_quiet = now == gone && self.waiting() >= MUCH;
            looks = if is_quiet { looks + 1 } else { 0 };
            gone = now;
        }
    }

    /// How many bytes wait for the client.
    pub(in crate::front) fn waiting(&self) -> usize {
        *self.backlog.bytes.borrow()
    }

    /// Ends the sequence after what was sent before.
    pub(in crate::front) async fn finish(&self) {
        let finishing = self.messages.send(None);
        // A client that does not read any more does not get to this.
        drop(tokio::time::timeout(LAST_MESSAGE, finishing).await);
    }
}

// === impl Backlog ===

impl Backlog {
    async fn until(&self, is_so: impl Fn(usize) -> bool) {
        let mut bytes = self.bytes.subscribe();
        // The sender is `self`.
        drop(bytes.wait_for(|bytes| is_so(*bytes)).await);
    }
}

// === impl Waiting ===

impl Drop for Waiting {
    fn drop(&mut self) {
        let bytes = self.message.len();
        self.backlog.gone.fetch_add(1, Ordering::Relaxed);
        self.backlog.bytes.send_modify(|all| *all -= bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn streams_are_not_read_while_much_waits() {
        let (outgoing, mut messages) = Outgoing::channel();
        outgoing.send(Bytes::from(vec![b'x'; MUCH])).await;
        let mut next = std::pin::pin!(outgoing.paced(async { 1 }));
        let waited = tokio::time::timeout(Duration::from_secs(60), next.as_mut()).await;
        assert!(waited.is_err());
        drop(messages.0.recv().await);
        assert_eq!(next.await, 1);
        assert_eq!(outgoing.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_slowly_is_one_that_reads() {
        let (outgoing, mut messages) = Outgoing::channel();
        let minute = Duration::from_secs(60);
        for _ in 0..4 {
            outgoing.send(Bytes::from(vec![b'x'; MUCH])).await;
        }
        let mut unread = std::pin::pin!(outgoing.unread_for(minute));
        for _ in 0..3 {
            let waited = tokio::time::timeout(minute * 5 / 6, unread.as_mut()).await;
            assert!(waited.is_err());
            drop(messages.0.recv().await);
        }
        let began = tokio::time::Instant::now();
        unread.await;
        assert!((minute..minute * 3 / 2).contains(&began.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_up_waits_no_longer() {
        let (outgoing, _messages) = Outgoing::channel();
        for _ in 0..MAX_WAITING {
            outgoing.send(Bytes::from_static(b"x")).await;
        }
        let one_more = outgoing.send(Bytes::from_static(b"x"));
        let given_up = tokio::time::timeout(Duration::from_secs(1), one_more).await;
        assert!(given_up.is_err());
        assert_eq!(outgoing.waiting(), MAX_WAITING);
    }
}
