//! How often strangers may knock at a route: a bucket that fills slowly.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many visits may come at once, and how long one more takes.
const BURST: f64 = 50.0;
const EVERY: Duration = Duration::from_millis(100);

/// The visits of one route, whoever makes them.
#[derive(Debug)]
pub(crate) struct Visits(Mutex<Bucket>);

#[derive(Debug)]
struct Bucket {
    left: f64,
    reckoned: Instant,
}

impl Visits {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Bucket {
            left: BURST,
            reckoned: Instant::now(),
        }))
    }

    /// Whether one more may come now.
    pub(crate) fn admits(&self) -> bool {
        let mut bucket = self.0.lock();
        let now = Instant::now();
        let refilled = (now - bucket.reckoned).as_secs_f64() / EVERY.as_secs_f64();
        bucket.left = (bucket.left + refilled).min(BURST);
        bucket.reckoned = now;
        let admits = bucket.left >= 1.0;
        if admits {
            bucket.left -= 1.0;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_let_in_and_then_ten_a_second() {
        let visits = Visits::new();
        assert_eq!((0..100).filter(|_| visits.admits()).count(), 50);
        tokio::time::advance(Duration::from_millis(1050)).await;
        assert_eq!((0..100).filter(|_| visits.admits()).count(), 10);
    }
}
