//! How the store stands with this gateway: whether it answers and, while it does not, until when
//! what was last seen in it is believed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::StoreError;

/// What this gateway has met of its store. Times are milliseconds after it began.
#[derive(Debug)]
pub(super) struct Standing {
    began: Instant,
    grace: Duration,
    is_reachable: AtomicBool,
    /// When it last answered; 0 is never.
    answered: AtomicU64,
    /// The same, but only of answers that came while announcements were heard.
    answered_in_hearing: AtomicU64,
    hears: AtomicBool,
    /// Since when every announcement was heard, up to `answered_in_hearing`.
    hears_since: AtomicU64,
    /// Why it did not answer, the last time that it did not.
    why: Mutex<Box<str>>,
}

/// How the store stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It answers.
    Well,
    /// It did not answer when it was last asked. What is at hand goes on for the time that is left.
    Away { why: Box<str>, left: Duration },
    /// It has not answered since this gateway started.
    Unmet { why: Box<str> },
}

// === impl Standing ===

impl Standing {
    pub(super) fn new(grace: Duration) -> Self {
        Self {
            began: Instant::now(),
            grace,
            is_reachable: AtomicBool::new(true),
            answered: AtomicU64::new(0),
            answered_in_hearing: AtomicU64::new(0),
            hears: AtomicBool::new(false),
            hears_since: AtomicU64::new(0),
            why: Mutex::default(),
        }
    }

    /// Milliseconds since the gateway began, at least one.
    pub(super) fn now(&self) -> u64 {
        millis(self.began.elapsed()).max(1)
    }

    /// Whether the store answered when it was last asked.
    pub(super) fn is_reachable(&self) -> bool {
        self.is_reachable.load(Ordering::Relaxed)
    }

    /// It has answered.
    pub(super) fn answers(&self) {
        let now = self.now();
        self.answered.store(now, Ordering::Relaxed);
        if self.hears.load(Ordering::Relaxed) {
            self.answered_in_hearing.store(now, Ordering::Relaxed);
        }
        if !self.is_reachable.swap(true, Ordering::Relaxed) {
            tracing::info!("the store is back");
        }
    }

    /// It has not.
    pub(super) fn is_away(&self, error: &StoreError) {
        *self.why.lock() = error.to_string().into();
        if self.is_reachable.swap(false, Ordering::Relaxed) {
            let error: &dyn std::error::Error = error;
            tracing::warn!(error, "the store does not answer");
        }
    }

    /// From now on announcements are heard; whatever was announced before may have been missed.
    pub(super) fn hears_again(&self) {
        self.hears_since.store(self.now() + 1, Ordering::Relaxed);
        self.hears.store(true, Ordering::Relaxed);
    }

    /// From now on announcements may be missed.
    pub(super) fn hears_no_more(&self) {
        self.hears.store(false, Ordering::Relaxed);
    }

    /// Whether what was last seen then may be believed although the store cannot be asked: for the
    /// grace after it was last known to be so. That is when the store last answered, if all that was
    /// announced up to then was heard: had it changed before, that would have been heard, too.
    pub(super) fn is_within_grace(&self, seen: u64) -> bool {
        let was_so = match seen >= self.hears_since.load(Ordering::Relaxed) {
            true => seen.max(self.answered_in_hearing.load(Ordering::Relaxed)),
            false => seen,
        };
        self.now() < was_so.saturating_add(millis(self.grace))
    }

    pub(super) fn condition(&self) -> Condition {
        if self.is_reachable() {
            return Condition::Well;
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
    /// Whether clients are served: all of them, or those whose sessions are at hand.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Well => true,
            Self::Away { left, .. } => !left.is_zero(),
            Self::Unmet { .. } => false,
        }
    }

    /// What an operator should know of it; `None` if all is well.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Well => None,
            Self::Unmet { why } => Some(format!("{why}, and has not been since the start")),
            Self::Away { why, left } if left.is_zero() => Some(format!(
                "{why}, for longer than `grace`: no session is served"
            )),
            Self::Away { why, left } => Some(format!(
                "{why}: for another {} s sessions that are at hand go on, and no others",
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
