//! The answer to a forward as the body of a response: sealed records, and signs of life between them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::sync::mpsc;

use crate::front::response::Heartbeat;
use crate::peers::{PART, Record, Sealer};

/// Where the records of an answer are put.
#[derive(Debug)]
pub(super) struct Out {
    records: mpsc::Sender<Record>,
    has_begun: AtomicBool,
}

/// The body of a response to another gateway.
#[derive(Debug)]
pub(crate) struct ForwardBody(Option<Box<Records>>);

#[derive(Debug)]
struct Records {
    sealer: Sealer,
    records: mpsc::Receiver<Record>,
    heartbeat: Heartbeat,
}

// === impl Out ===

impl Out {
    pub(super) fn new(records: mpsc::Sender<Record>) -> Self {
        Self {
            records,
            has_begun: AtomicBool::new(false),
        }
    }

    /// Puts a record, and waits for room. Whether anybody reads it is not known.
    pub(super) async fn put(&self, record: Record) {
        self.has_begun.store(true, Ordering::Relaxed);
        drop(self.records.send(record).await);
    }

    /// Puts one message.
    pub(super) async fn put_whole(&self, message: Bytes) {
        self.put(Record::Whole(message.len() as u64)).await;
        self.put_parts(message).await;
    }

    /// Puts bytes, in as many parts as it takes.
    pub(super) async fn put_parts(&self, mut bytes: Bytes) {
        while !bytes.is_empty() {
            let part = bytes.split_to(PART.min(bytes.len()));
            self.put(Record::Part(part)).await;
        }
    }

    /// Whether anything was put.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Relaxed)
    }

    /// Waits until nobody reads any more.
    pub(super) async fn left(&self) {
        self.records.closed().await;
    }
}

// === impl ForwardBody ===

impl ForwardBody {
    pub(super) fn empty() -> Self {
        Self(None)
    }

    pub(super) fn records(sealer: Sealer, records: mpsc::Receiver<Record>) -> Self {
        Self(Some(Box::new(Records {
            sealer,
            records,
            heartbeat: Heartbeat::new(),
        })))
    }
}

impl Body for ForwardBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(answer) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let record = match answer.records.poll_recv(cx) {
            Poll::Ready(Some(record)) => {
                answer.heartbeat.put_off();
                record
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => match answer.heartbeat.poll(cx) {
                Poll::Ready(_) => Record::Beat,
                Poll::Pending => return Poll::Pending,
            },
        };
        // A record that cannot be sealed ends the answer without a last record, which proves nothing.
        let sealed = answer.sealer.seal(&record);
        Poll::Ready(sealed.map(|sealed| Ok(Frame::data(sealed))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }
}
