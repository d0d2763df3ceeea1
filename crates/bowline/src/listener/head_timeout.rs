//! The bounds of a request's head: its time, and its size while nobody knows whose it is.
//!
//! hyper asks its timer for a new alarm before every request. This timer only stores the deadline, and
//! one alarm per connection checks it. Most heads arrive at once, and for them no alarm is set or
//! cleared. A head that has begun and does not complete has only a short time, because it takes memory.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::connections::Connection;

/// How long a connection may be idle between requests. This is longer than clients keep idle
/// connections, so that the client closes them and no request meets a closing connection.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The same for an anonymous connection.
const ANONYMOUS_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a head may take from its first byte to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How large the head of a stranger's request may be.
const STRANGERS_HEAD: usize = 16 * 1024;

/// What a stranger gets whose head is larger.
const TOO_LARGE: &[u8] =
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// The deadline for a connection's next head.
#[derive(Debug, Clone)]
pub(super) struct HeadTimeout(Arc<HeadDeadline>);

#[derive(Debug)]
struct HeadDeadline {
    opened: Instant,
    connection: Arc<Connection>,
    /// Milliseconds after `opened`; [`NO_WAIT`] while no head is expected.
    until: AtomicU64,
    /// How many bytes arrived since the wait began.
    heard: AtomicUsize,
}

const NO_WAIT: u64 = u64::MAX;

/// hyper's wait for one head.
struct HeadWait(Arc<HeadDeadline>);

/// A connection that notices when no data arrives within a head.
#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    stream: S,
    timeout: HeadTimeout,
}

// === impl HeadTimeout ===

impl HeadTimeout {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        Self(Arc::new(HeadDeadline {
            opened: Instant::now(),
            connection,
            until: AtomicU64::new(NO_WAIT),
            heard: AtomicUsize::new(0),
        }))
    }

    /// Wraps a connection to observe its data.
    pub(super) fn with<S>(&self, stream: S) -> WatchedStream<S> {
        WatchedStream {
            stream,
            timeout: self.clone(),
        }
    }

    /// Waits until the timeout has elapsed. Must be polled after the connection.
    pub(super) async fn elapsed(&self) {
        let waiting = &self.0;
        let mut alarm = pin!(tokio::time::sleep_until(
            waiting.opened + ANONYMOUS_IDLE_TIMEOUT
        ));
        let mut set_for = millis(ANONYMOUS_IDLE_TIMEOUT);
        std::future::poll_fn(|cx| {
            loop {
                let until = waiting.until.load(Ordering::Relaxed);
                if until < set_for {
                    set_for = until;
                    alarm.as_mut().reset(waiting.at(set_for));
                }
                ready!(alarm.as_mut().poll(cx));
                let now = millis(waiting.opened.elapsed());
                set_for = match until {
                    NO_WAIT => now + millis(IDLE_TIMEOUT),
                    until if until <= now => return Poll::Ready(()),
                    until => until,
                };
                alarm.as_mut().reset(waiting.at(set_for));
            }
        })
        .await;
    }
}

#[expect(clippy::disallowed_types, reason = "hyper's, and made from tokio's")]
impl Timer for HeadTimeout {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        let waiting = &self.0;
        let rest = match waiting.connection.is_anonymous() {
            true => ANONYMOUS_IDLE_TIMEOUT.min(duration),
            false => duration,
        };
        waiting.wait_until(waiting.opened.elapsed() + rest)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        let waiting = &self.0;
        match waiting.connection.is_anonymous() {
            true => self.sleep(deadline.saturating_duration_since(self.now())),
            // hyper has just asked for the time, and asking again is not free.
            false => waiting.wait_until(Instant::from_std(deadline) - waiting.opened),
        }
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

// === impl HeadDeadline ===

impl HeadDeadline {
    fn at(&self, millis: u64) -> Instant {
        self.opened + Duration::from_millis(millis)
    }

    /// Begins to wait for a head, until this long after the connection was opened.
    fn wait_until(self: &Arc<Self>, after_opening: Duration) -> Pin<Box<dyn Sleep>> {
        self.heard.store(0, Ordering::Relaxed);
        self.until.store(millis(after_opening), Ordering::Relaxed);
        Box::pin(HeadWait(Arc::clone(self)))
    }

    /// Whether a stranger has sent so much without completing a head. What follows a head is not counted: its wait has
    /// ended by then.
    fn is_too_large(&self) -> bool {
        self.heard.load(Ordering::Relaxed) >= STRANGERS_HEAD
            && self.until.load(Ordering::Relaxed) != NO_WAIT
            && self.connection.is_anonymous()
    }

    /// Records that no more data is available for now. If a head has begun, its time starts.
    fn note_silence(&self) {
        if self.until.load(Ordering::Relaxed) == NO_WAIT || self.heard.load(Ordering::Relaxed) == 0
        {
            return;
        }
        let until = millis(self.opened.elapsed() + HEAD_TIMEOUT);
        self.until.fetch_min(until, Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    // `NO_WAIT` itself is not a time.
    u64::try_from(duration.as_millis()).unwrap_or(NO_WAIT - 1)
}

// === impl HeadWait ===

impl Future for HeadWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Sleep for HeadWait {}

impl Drop for HeadWait {
    fn drop(&mut self) {
        self.0.until.store(NO_WAIT, Ordering::Relaxed);
    }
}

// === impl WatchedStream ===

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.timeout.0.is_too_large() {
            // Nothing else is being written while a head is read. Who does not take it has had an answer.
            drop(Pin::new(&mut self.stream).poll_write(cx, TOO_LARGE));
            return Poll::Ready(Err(io::Error::other("a stranger's head is too large")));
        }
        let before = into.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let waiting = &self.timeout.0;
        match read {
            Poll::Pending => waiting.note_silence(),
            Poll::Ready(_) => {
                let arrived = into.filled().len() - before;
                waiting.heard.fetch_add(arrived, Ordering::Relaxed);
            }
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
