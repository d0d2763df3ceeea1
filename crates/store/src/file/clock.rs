//! The file's own clock, which decides when records expire.
//!
//! It runs only while a gateway has the file open: a jump of the wall clock neither expires sessions nor
//! keeps them for ever, and nothing expires while no gateway was running. The clock continues where the
//! last gateway stopped, with an error of at most [`SWEEP`](super::writer::SWEEP). A new file starts
//! with the current date, so that files of older releases, which contain dates, need no conversion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Milliseconds; only differences mean something.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// The time at the start, minus what was skipped since.
    start: AtomicU64,
}

// === impl Clock ===

impl Clock {
    /// A clock that continues from here.
    pub(super) fn from(start: u64) -> Self {
        Self {
            began: Instant::now(),
            start: start.into(),
        }
    }

    pub(super) fn now(&self) -> u64 {
        let start = self.start.load(Ordering::Relaxed);
        later(start, self.began.elapsed())
    }

    /// This much later than now.
    pub(super) fn after(&self, ttl: Duration) -> u64 {
        later(self.now(), ttl)
    }

    /// Skips the time during which the file was closed.
    pub(super) fn skip(&self, closed: Duration) {
        let closed = millis(closed);
        // Only one thread opens the file.
        let start = self.start.load(Ordering::Relaxed);
        self.start
            .store(start.saturating_sub(closed), Ordering::Relaxed);
    }
}

fn later(then: u64, by: Duration) -> u64 {
    then.saturating_add(millis(by))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_file_was_closed_does_not_count() {
        let clock = Clock::from(10_000);
        let second = Duration::from_secs(1);
        tokio::time::advance(3 * second).await;
        assert_eq!(clock.now(), 13_000);
        clock.skip(2 * second);
        assert_eq!(clock.now(), 11_000);
        assert_eq!(clock.after(second), 12_000);
        assert_eq!(clock.after(Duration::MAX), u64::MAX);
    }
}
