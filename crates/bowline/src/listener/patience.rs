//! How long a connection may make us wait for a request's head.
//!
//! hyper asks its timer for a new alarm before every request. This one only notes the time; one
//! alarm per connection, set anew at most once per wait, looks at the note. Heads that come in time,
//! which is nearly all, set and clear no alarm at all.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Sleep, Timer};
use tokio::time::Instant;

/// Until when a connection's next head is waited for.
#[derive(Debug, Clone)]
pub(super) struct Patience {
    opened: Instant,
    limit: Duration,
    /// Milliseconds after `opened`; [`NO_WAIT`] while no head is waited for.
    until: Arc<AtomicU64>,
}

const NO_WAIT: u64 = u64::MAX;

/// hyper's wait for one head.
struct Wait(Arc<AtomicU64>);

// === impl Patience ===

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            opened: Instant::now(),
            limit,
            until: Arc::new(AtomicU64::new(NO_WAIT)),
        }
    }

    /// Waits until a head is late.
    pub(super) async fn is_over(&self) {
        loop {
            let now = Instant::now();
            let next = match self.until.load(Ordering::Relaxed) {
                NO_WAIT => now + self.limit,
                until => self.opened + Duration::from_millis(until),
            };
            if next <= now {
                return;
            }
            tokio::time::sleep_until(next).await;
        }
    }
}

#[expect(clippy::disallowed_types, reason = "hyper's, and made from tokio's")]
impl Timer for Patience {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        let until = self.opened.elapsed() + duration;
        let millis = u64::try_from(until.as_millis()).unwrap_or(NO_WAIT);
        self.until.store(millis, Ordering::Relaxed);
        Box::pin(Wait(Arc::clone(&self.until)))
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }
}

// === impl Wait ===

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Sleep for Wait {}

impl Drop for Wait {
    fn drop(&mut self) {
        self.0.store(NO_WAIT, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn a_late_head_is_noticed_and_a_long_answer_is_not_one() {
        let patience = Patience::new(LIMIT);
        let started = Instant::now();
        let over = async {
            patience.is_over().await;
            started.elapsed()
        };
        let requests = async {
            let wait = patience.sleep(LIMIT);
            tokio::time::sleep(LIMIT / 2).await;
            // The head came; its answer takes ten times as long as a head may.
            drop(wait);
            tokio::time::sleep(LIMIT * 10).await;
            (
                patience.sleep_until(patience.now() + LIMIT),
                started.elapsed(),
            )
        };
        let (over, (_wait, waited_from)) = tokio::join!(over, requests);
        let after = over - waited_from;
        assert!(
            (LIMIT..LIMIT + Duration::from_millis(2)).contains(&after),
            "{after:?}"
        );
    }
}
