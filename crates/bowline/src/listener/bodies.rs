//! The memory of long bodies, until they are gone.
//!
//! A client with a session may send long bodies slowly, and calls may wait long for their servers. The memory of all
//! long bodies is bounded, from their first byte until nobody has the message any more, and each caller has a share
//! of it. A body takes memory for what has arrived, not for what it announces. Bodies of up to 64 KiB are not
//! counted, because most are that short: their number is bounded by connections and calls.

use bytes::{Bytes, BytesMut};
use http_body::Body;
use http_body_util::BodyExt as _;

use crate::caller::Caller;
use crate::session::client_state::MAX_OPENING;
use crate::share::memory::{Memory, Room};

/// The maximum memory, in bodies of the largest size.
const BODIES: usize = 64;

/// The unit in which memory is counted.
const UNIT: usize = MAX_OPENING;

/// The memory that long bodies may use.
#[derive(Debug)]
pub(crate) struct BodyMemory(Memory);

/// A body, and the room that it takes until [`Room::until_gone`].
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) bytes: Bytes,
    pub(crate) room: Room,
}

/// Why a body was not read to its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BodyReadError {
    TooLarge,
    NoRoom,
    Broken,
}

impl BodyMemory {
    /// The limit for bodies of at most `largest` bytes and this number of callers.
    pub(crate) fn new(largest: usize, callers: usize) -> Self {
        Self(Memory::new(BODIES * largest.div_ceil(UNIT), UNIT, callers))
    }

    /// Divides the memory among this number of callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.0.share_out(callers);
    }

    /// Reads a caller's body of at most `limit` bytes.
    pub(crate) async fn read<B>(
        &self,
        caller: &Caller,
        body: &mut B,
        limit: usize,
    ) -> Result<Held, BodyReadError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        if body.size_hint().lower() > limit as u64 {
            return Err(BodyReadError::TooLarge);
        }
        let (mut bytes, mut room) = (BytesMut::new(), Room::default());
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| BodyReadError::Broken)?.into_data() else {
                continue;
            };
            let length = bytes.len() + data.len();
            if length > limit {
                return Err(BodyReadError::TooLarge);
            }
            let has_room = self.0.grow(&mut room, caller, length);
            has_room.ok_or(BodyReadError::NoRoom)?;
            bytes.extend_from_slice(&data);
        }
        let bytes = bytes.freeze();
        Ok(Held { bytes, room })
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::sync::Arc;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use http_body::Frame;
    use tokio::sync::mpsc;
    use tokio::task::JoinHandle;
    use tokio_util::task::TaskTracker;

    use super::*;

    const LIMIT: usize = 4 * UNIT;

    type Pen = mpsc::Sender<Bytes>;

    /// A body that arrives as the test writes it.
    struct Written(mpsc::Receiver<Bytes>);

    impl Body for Written {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let next = self.0.poll_recv(cx);
            next.map(|data| data.map(|data| Ok(Frame::data(data))))
        }
    }

    fn begin(
        bodies: &Arc<BodyMemory>,
        caller: &Caller,
    ) -> (Pen, JoinHandle<Result<Held, BodyReadError>>) {
        let (pen, frames) = mpsc::channel(1);
        let (bodies, caller) = (Arc::clone(bodies), caller.clone());
        let read = TaskTracker::new()
            .spawn(async move { bodies.read(&caller, &mut Written(frames), LIMIT).await });
        (pen, read)
    }

    async fn write(pen: &Pen, bytes: usize) {
        drop(pen.send(vec![b'x'; bytes].into()).await);
    }

    fn named(name: &str) -> Caller {
        Caller::Named(name.parse().unwrap(), None)
    }

    #[tokio::test]
    async fn what_one_caller_holds_leaves_the_others_theirs() {
        let bodies = Arc::new(BodyMemory::new(LIMIT, 2));
        let (greedy, modest) = (named("greedy"), named("modest"));
        let mut unfinished = Vec::new();
        let refused = loop {
            let (pen, read) = begin(&bodies, &greedy);
            write(&pen, LIMIT - 1).await;
            let taken = bodies.0.taken();
            // The body is either held or refused.
            while bodies.0.taken() < taken + LIMIT && !read.is_finished() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            match read.is_finished() {
                true => break read,
                false => unfinished.push((pen, read)),
            }
        };
        assert_eq!(refused.await.unwrap().unwrap_err(), BodyReadError::NoRoom);
        assert!(unfinished.len() > BODIES / 2, "{}", unfinished.len());
        let (pen, read) = begin(&bodies, &modest);
        write(&pen, LIMIT).await;
        drop(pen);
        assert_eq!(read.await.unwrap().unwrap().bytes.len(), LIMIT);
        // Short bodies are still read.
        let (pen, read) = begin(&bodies, &greedy);
        write(&pen, UNIT).await;
        drop(pen);
        assert_eq!(read.await.unwrap().unwrap().bytes.len(), UNIT);
        // A complete body holds its memory until it is gone.
        let (pen, read) = unfinished.pop().unwrap();
        drop(pen);
        let Held { bytes, room } = read.await.unwrap().unwrap();
        let whole = room.until_gone(bytes);
        assert_eq!(whole.len(), LIMIT - 1);
        let (pen, read) = begin(&bodies, &greedy);
        write(&pen, LIMIT).await;
        drop(pen);
        assert_eq!(read.await.unwrap().unwrap_err(), BodyReadError::NoRoom);
        drop(whole);
        let (pen, read) = begin(&bodies, &greedy);
        write(&pen, LIMIT).await;
        drop(pen);
        assert_eq!(read.await.unwrap().unwrap().bytes.len(), LIMIT);
    }

    #[tokio::test]
    async fn one_that_is_too_large_is_not_held() {
        let bodies = Arc::new(BodyMemory::new(LIMIT, 1));
        let (pen, read) = begin(&bodies, &Caller::Local);
        write(&pen, LIMIT).await;
        write(&pen, 1).await;
        assert_eq!(read.await.unwrap().unwrap_err(), BodyReadError::TooLarge);
        assert_eq!(bodies.0.taken(), 0);
    }
}
