//! The health of the store as this gateway sees it: whether it answers, whether it accepts writes and, while
//! it is unavailable, how long cached sessions may be used.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bowline_store::{Operation, Refusal, StoreError};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The health of the store. Times are milliseconds since the gateway started.
#[derive(Debug)]
pub(crate) struct StoreHealth {
    began: Instant,
    grace: Duration,
    is_reachable: AtomicBool,
    /// When it last answered; 0 means never.
    answered: AtomicU64,
    /// When it last answered while announcements were received.
    answered_in_hearing: AtomicU64,
    hears: AtomicBool,
    /// Since when every announcement was received, up to `answered_in_hearing`.
    hears_since: AtomicU64,
    /// The last error while it was unavailable.
    why: Mutex<Box<str>>,
    /// The last operation that it refused while it was available, until that operation succeeds.
    refused: Mutex<Option<(Operation, Refusal)>>,
}

/// The condition of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It answers.
    Well,
    /// It answers but refuses writes.
    Refuses { why: Refusal },
    /// It did not answer the last request. Cached sessions are used for the time that is left.
    Away { why: Box<str>, left: Duration },
    /// It has not answered since this gateway started.
    Unmet { why: Box<str> },
}

// === impl StoreHealth ===

impl StoreHealth {
    pub(crate) fn new(grace: Duration) -> Self {
        Self {
            began: Instant::now(),
            grace,
            is_reachable: AtomicBool::new(true),
            answered: AtomicU64::new(0),
            answered_in_hearing: AtomicU64::new(0),
            hears: AtomicBool::new(false),
            hears_since: AtomicU64::new(0),
            why: Mutex::default(),
            refused: Mutex::new(None),
        }
    }

    /// Milliseconds since the gateway began, at least one.
    pub(crate) fn now(&self) -> u64 {
        millis(self.began.elapsed()).max(1)
    }

    /// Whether the store answered when it was last asked.
    pub(crate) fn is_reachable(&self) -> bool {
        self.is_reachable.load(Ordering::Relaxed)
    }

    /// Records the result of an operation.
    pub(crate) fn note(&self, operation: Operation, error: Option<&StoreError>) {
        match error {
            None => {
                self.answers();
                self.takes(operation);
            }
            // A store that is full, or a replica, can still be read.
            Some(error @ StoreError::Refused { why, .. }) if !operation.is_read() => {
                self.refuses(operation, *why, error);
            }
            Some(
                error @ (StoreError::Unreachable(_)
                | StoreError::Timeout(_)
                | StoreError::Refused { .. }),
            ) => self.note_unavailable(error),
            Some(_) => {}
        }
    }

    /// Records that the store answered.
    fn answers(&self) {
        let now = self.now();
        self.answered.store(now, Ordering::Relaxed);
        if self.hears.load(Ordering::Relaxed) {
            self.answered_in_hearing.store(now, Ordering::Relaxed);
        }
        if !self.is_reachable.swap(true, Ordering::Relaxed) {
            tracing::info!("store available again");
        }
    }

    /// Records that the store did not answer.
    fn note_unavailable(&self, error: &StoreError) {
        let (why, advice) = match error {
            StoreError::Refused { why, .. } => {
                (format!("the store refused: {why}"), Some(why.advice()))
            }
            _ => (error.to_string(), None),
        };
        *self.why.lock() = why.into();
        if self.is_reachable.swap(false, Ordering::Relaxed) {
            let error: &dyn std::error::Error = error;
            match advice {
                Some(advice) => tracing::warn!(error, advice, "store unavailable"),
                None => tracing::warn!(error, "store unavailable"),
            }
        }
    }

    /// Records that the operation succeeded. After a refusal of another operation, only a successful
    /// write of the gateway's presence ends the refusal; if a permission is missing, not even that does.
    fn takes(&self, operation: Operation) {
        let mut refused = self.refused.lock();
        let is_over = refused.is_some_and(|(other, why)| {
            other == operation || (operation == Operation::Appear && why != Refusal::Permission)
        });
        if is_over {
            *refused = None;
            tracing::info!("store accepts writes again");
        }
    }

    fn refuses(&self, operation: Operation, why: Refusal, error: &StoreError) {
        let before = self.refused.lock().replace((operation, why));
        if before.is_none_or(|(_, before)| before != why) {
            let error: &dyn std::error::Error = error;
            let operation = operation.name();
            tracing::warn!(
                error,
                operation,
                advice = why.advice(),
                "store refuses writes"
            );
        }
    }

    /// Whether announcements are received.
    pub(crate) fn hears(&self) -> bool {
        self.hears.load(Ordering::Relaxed)
    }

    /// Announcements are received from now on; earlier ones may have been missed.
    pub(crate) fn hears_again(&self) {
        self.hears_since.store(self.now() + 1, Ordering::Relaxed);
        self.hears.store(true, Ordering::Relaxed);
    }

    /// Announcements may be missed from now on.
    pub(crate) fn hears_no_more(&self) {
        self.hears.store(false, Ordering::Relaxed);
    }

    /// Whether a session last seen at `seen` may be used while the store is unavailable: for the grace
    /// period after it was last known to be current. That is when the store last answered, if all
    /// announcements up to then were received: an earlier change would have been announced.
    pub(crate) fn is_within_grace(&self, seen: u64) -> bool {
        self.is_known_since(seen, self.grace)
    }

    /// Whether a session last seen at `seen` was known to be current no longer ago than this.
    pub(crate) fn is_known_since(&self, seen: u64, ago: Duration) -> bool {
        let was_so = match seen >= self.hears_since.load(Ordering::Relaxed) {
            true => seen.max(self.answered_in_hearing.load(Ordering::Relaxed)),
            false => seen,
        };
        self.now() < was_so.saturating_add(millis(ago))
    }

    pub(crate) fn condition(&self) -> Condition {
        if self.is_reachable() {
            let refused = *self.refused.lock();
            return refused.map_or(Condition::Well, |(_, why)| Condition::Refuses { why });
        }
        let why = self.why.lock().clone();
        match self.answered.load(Ordering::Relaxed) {
            0 => Condition::Unmet { why },
            answered => {
                let until = answered.saturating_add(millis(self.grace));
                let left = Duration::from_millis(until.saturating_sub(self.now()));
                Condition::Away { why, left }
            }
        }
    }
}

// === impl Condition ===

impl Condition {
    /// Whether clients are served: all of them, or those whose sessions are cached.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Well | Self::Refuses { .. } => true,
            Self::Away { left, .. } => !left.is_zero(),
            Self::Unmet { .. } => false,
        }
    }

    /// The problem as operators see it; `None` if there is none.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Well => None,
            Self::Refuses { why } => Some(format!(
                "the store refuses writes: {why}; known sessions continue, new ones cannot be stored"
            )),
            Self::Unmet { why } => Some(format!("{why}, and has been unavailable since the start")),
            Self::Away { why, left } if left.is_zero() => Some(format!(
                "{why}, for longer than `grace`: no session is served"
            )),
            Self::Away { why, left } => Some(format!(
                "{why}: for another {} s cached sessions continue, and no others",
                left.as_secs() + 1
            )),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
