//! Limits how many sessions of one upstream move at the same time, and when.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many sessions of one upstream move at the same time. If a thousand sessions initialized at
/// once, that would be the outage that draining is meant to prevent.
const AT_ONCE: usize = 8;

/// The moves of one upstream's sessions.
#[derive(Debug)]
pub(crate) struct Moves {
    places: Arc<Semaphore>,
    /// After a failed move, the next one waits until then.
    not_before: Mutex<Option<Instant>>,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            not_before: Mutex::default(),
        }
    }
}

impl Moves {
    /// A permit for one more move, if one is free.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// After a failed move: no move starts before `then`.
    pub(crate) fn rest_until(&self, then: Instant) {
        *self.not_before.lock() = Some(then);
    }

    /// Whether a move may start now.
    pub(crate) fn may_begin(&self) -> bool {
        self.not_before
            .lock()
            .is_none_or(|then| then <= Instant::now())
    }
}
