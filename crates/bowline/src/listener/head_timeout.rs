//! The timeout of a request's head.
//!
//! hyper asks its timer for a new alarm before every request. This one only notes the time; one
//! alarm per connection looks at the note. Heads that come in time and at once, which is nearly all,
//! set and clear no alarm at all. A head that has begun and does not come is waited for only shortly:
//! it takes memory.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::connections::Connection;

/// How long a connection may be idle between requests. Longer than clients keep idle connections, so
/// that it is they who close them and never a request that meets a closing one.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The same as long as the connection is anonymous.
const ANONYMOUS_IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a head may take from its first byte to its last.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Until when a connection's next head is waited for.
#[derive(Debug, Clone)]
pub(super) struct HeadTimeout(Arc<HeadDeadline>);

#[derive(Debug)]
struct HeadDeadline {
    opened: Instant,
    connection: Arc<Connection>,
    /// Milliseconds after `opened`; [`NO_WAIT`] while no head is waited for.
    until: AtomicU64,
    /// Whether anything came since the wait began.
    heard: AtomicBool,
}

const NO_WAIT: u64 = u64::MAX;

/// hyper's wait for one head.
struct HeadWait(Arc<HeadDeadline>);

/// A connection whose silence within a head is noticed.
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
            heard: AtomicBool::new(false),
        }))
    }

    /// Listens to what comes over a connection.
    pub(super) fn with<S>(&self, stream: S) -> WatchedStream<S> {
        WatchedStream {
            stream,
            timeout: self.clone(),
        }
    }

    /// Waits until the timeout has elapsed. It has to be polled after the connection was.
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
        waiting.heard.store(false, Ordering::Relaxed);
        let until = millis(waiting.opened.elapsed() + rest);
        waiting.until.store(until, Ordering::Relaxed);
        Box::pin(HeadWait(Arc::clone(waiting)))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
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

    /// Nothing more has come for now. If a head has begun, it has only so much time.
    fn note_silence(&self) {
        if self.until.load(Ordering::Relaxed) == NO_WAIT || !self.heard.load(Ordering::Relaxed) {
            return;
        }
        let until = millis(self.opened.elapsed() + HEAD_TIMEOUT);
        self.until.fetch_min(until, Ordering::Relaxed);
    }
}

fn millis(duration: Duration) -> u64 {
    // The last one is no time.
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

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let waiting = &self.timeout.0;
        match read {
            Poll::Pending => waiting.note_silence(),
            Poll::Ready(_) => waiting.heard.store(true, Ordering::Relaxed),
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
