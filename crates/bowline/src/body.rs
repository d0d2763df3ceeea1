//! Bodies that are held in memory: reading one within a bound, and sending one.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use thiserror::Error;

/// Why a body was not read to its end.
#[derive(Debug, Error)]
pub(crate) enum ReadError<E> {
    /// It is longer than allowed.
    #[error("more than {0} bytes")]
    TooLarge(usize),
    /// It broke off.
    #[error("{0}")]
    Broken(E),
}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read_limited<B>(mut body: B, limit: usize) -> Result<Bytes, ReadError<B::Error>>
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
            // Most bodies are one frame, which is then passed on without a copy.
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

/// Whether a request has begun to leave: from then on it may have run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Flags>);

#[derive(Debug, Default)]
struct Flags {
    sent: AtomicBool,
    client_left: AtomicBool,
}

impl Sent {
    /// Whether any of it was handed to a connection.
    pub(crate) fn get(&self) -> bool {
        self.0.sent.load(Ordering::Acquire)
    }

    /// The client that asked is no longer there: what was sent goes on, and nothing else is sent.
    pub(crate) fn leave(&self) {
        self.0.client_left.store(true, Ordering::Release);
    }

    pub(crate) fn client_left(&self) -> bool {
        self.0.client_left.load(Ordering::Acquire)
    }

    /// Waits until the client leaves. Nobody is woken for it: a future whose client leaves moves to
    /// another task, where it is polled anew.
    pub(crate) async fn left(&self) {
        std::future::poll_fn(|_| match self.client_left() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
    }
}

/// An outgoing body that notes when it is first asked for, which is when the request's head is
/// written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    data: Option<Bytes>,
    sent: Sent,
}

impl Outgoing {
    pub(crate) fn new(data: Bytes, sent: Sent) -> Self {
        Self {
            data: Some(data),
            sent,
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            data: None,
            sent: Sent::default(),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.sent.0.sent.store(true, Ordering::Release);
        Poll::Ready(self.data.take().map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}
