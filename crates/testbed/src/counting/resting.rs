//! Idle connections that the server closes at random times.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// How long the connections of a replica may be idle.
#[derive(Debug, Default)]
pub(super) struct Resting {
    dice: Mutex<Option<Dice>>,
    closed: AtomicU64,
}

#[derive(Debug)]
struct Dice {
    longest: Duration,
    state: u64,
}

/// Whether one connection is idle: even numbers are, except for the first.
#[derive(Debug, Default)]
pub(super) struct Rest(watch::Sender<u64>);

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Busy(Arc<Rest>);

// === impl Resting ===

impl Resting {
    pub(super) fn limit(&self, longest: Duration, seed: u64) {
        *self.dice.lock() = Some(Dice {
            longest,
            state: seed,
        });
    }

    pub(super) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// The length of the next idle time; `None` if it is random.
    fn next(&self) -> Option<Duration> {
        let mut dice = self.dice.lock();
        dice.as_mut().map(Dice::throw)
    }
}

impl Dice {
    /// Splitmix64: it is seeded and good enough.
    fn throw(&mut self) -> Duration {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let thousandth = u32::try_from(mixed % 1000).unwrap_or_default();
        self.longest * thousandth / 1000
    }
}

// === impl Rest ===

impl Rest {
    /// Marks a request as in progress until this is dropped.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        self.0.send_modify(|count| *count += 1);
        Busy(Arc::clone(self))
    }

    /// Waits until the connection was idle for long enough to be closed.
    pub(super) async fn is_over(&self, resting: &Resting) {
        let mut changes = self.0.subscribe();
        loop {
            let count = *changes.borrow_and_update();
            let is_resting = count > 0 && count.is_multiple_of(2);
            let rest = match resting.next().filter(|_| is_resting) {
                Some(rest) => rest,
                None => Duration::MAX,
            };
            tokio::select! {
                () = tokio::time::sleep(rest) => {
                    resting.closed.fetch_add(1, Ordering::Relaxed);
                    return;
                }
                // The sender belongs to this connection and outlives the wait.
                _ = changes.changed() => {}
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count += 1);
    }
}
