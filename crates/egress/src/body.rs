//! Bodies that are held in memory: reading one up to a limit, and knowing whether one was sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;
use thiserror::Error;

/// Why a body was not read to its end.
#[derive(Debug, Error)]
pub enum ReadError<E> {
    /// It is longer than allowed.
    #[error("is longer than {0} bytes")]
    TooLarge(usize),
    /// It broke off.
    #[error("broke off: {0}")]
    Broken(E),
}

/// Reads a whole body of at most `limit` bytes.
pub async fn read_limited<B>(mut body: B, limit: usize) -> Result<Bytes, ReadError<B::Error>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.size_hint().lower() > limit as u64 {
        return Err(ReadError::TooLarge(limit));
    }
    let mut first = Bytes::new();
    let mut joined: Option<BytesMut> = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(ReadError::Broken)?.into_data() else {
            continue;
        };
        let so_far = joined.as_ref().map_or(first.len(), BytesMut::len);
        if so_far + data.len() > limit {
            return Err(ReadError::TooLarge(limit));
        }
        match &mut joined {
            Some(joined) => joined.extend_from_slice(&data),
            // Most bodies are one frame, which is returned without a copy.
            None if first.is_empty() => first = data,
            None => {
                let mut bytes = BytesMut::from(first.as_ref());
                bytes.extend_from_slice(&data);
                joined = Some(bytes);
            }
        }
    }
    Ok(joined.map_or(first, BytesMut::freeze))
}

/// Whether any byte of a request was sent: from then on the server may have run it.
#[derive(Debug, Clone, Default)]
pub struct Sent(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    sent: AtomicBool,
    client_left: AtomicBool,
}

impl Sent {
    /// Its first byte was sent.
    pub fn begin(&self) {
        self.0.sent.store(true, Ordering::Release);
    }

    /// Whether any byte was sent.
    pub fn get(&self) -> bool {
        self.0.sent.load(Ordering::Acquire)
    }

    /// The client disconnected: what was sent continues, and nothing else is sent.
    pub fn leave(&self) {
        self.0.client_left.store(true, Ordering::Release);
    }

    /// Whether the client disconnected.
    pub fn client_left(&self) -> bool {
        self.0.client_left.load(Ordering::Acquire)
    }

    /// Waits until the client disconnects. No waker is registered: the future of a client that disconnects
    /// moves to another task, where it is polled again.
    pub async fn left(&self) {
        std::future::poll_fn(|_| match self.client_left() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}
