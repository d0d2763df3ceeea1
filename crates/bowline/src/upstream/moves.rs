//! How many sessions of one upstream move at the same time, and when.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many sessions of one upstream move at the same time: a thousand that all initialise at once
/// would be the outage that draining is to spare everybody.
const AT_ONCE: usize = 8;

/// An upstream's moves.
#[derive(Debug)]
pub(crate) struct Moves {
    places: Arc<Semaphore>,
    /// After one that failed the next is not tried at once.
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
    /// A place for one more move, if there is one.
    pub(crate) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// One has failed: the next is not tried before then.
    pub(crate) fn rest_until(&self, then: Instant) {
        *self.not_before.lock() = Some(then);
    }

    /// Whether one may be tried now.
    pub(crate) fn may_begin(&self) -> bool {
        self.not_before
            .lock()
            .is_none_or(|then| then <= Instant::now())
    }
}
