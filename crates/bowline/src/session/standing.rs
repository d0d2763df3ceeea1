//! How the store stands with this gateway: whether it answers, whether it takes what it is given
//! and, while it does not answer, until when what was last seen in it is believed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::store::{Operation, Refusal, StoreError};

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
    /// What it refused although it answers, and has not done since.
    refused: Mutex<Option<(Operation, Refusal)>>,
}

/// How the store stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// It answers.
    Well,
    /// It answers, and does not take what it is given.
    Refuses { why: Refusal },
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
            refused: Mutex::new(None),
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

    /// Notes how the store took something.
    pub(super) fn note(&self, operation: Operation, error: Option<&StoreError>) {
        match error {
            None => {
                self.answers();
                self.takes(operation);
            }
            // A store that is full, or a replica, can be read all the same.
            Some(error @ StoreError::Refused { why, .. }) if !operation.is_asking() => {
                self.refuses(operation, *why, error);
            }
            Some(
                error @ (StoreError::Unreachable(_)
                | StoreError::Timeout(_)
                | StoreError::Refused { .. }),
            ) => self.is_away(error),
            Some(_) => {}
        }
    }

    /// It has answered.
    fn answers(&self) {
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
    fn is_away(&self, error: &StoreError) {
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
                Some(advice) => tracing::warn!(error, "the store cannot be asked: {advice}"),
                None => tracing::warn!(error, "the store does not answer"),
            }
        }
    }

    /// It did this. Where something else was refused, only what every gateway writes all the time
    /// shows that this is over; and for want of a permission, not even that.
    fn takes(&self, operation: Operation) {
        let mut refused = self.refused.lock();
        let is_over = refused.is_some_and(|(other, why)| {
            other == operation || (operation == Operation::Appear && why != Refusal::Permission)
        });
        if is_over {
            *refused = None;
            tracing::info!("the store takes what it is given again");
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
                "the store answers and refuses, so known sessions go on and new ones cannot be kept: {}",
                why.advice()
            );
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
        self.is_known_since(seen, self.grace)
    }

    /// Whether it is no longer than this that what was last seen then was known to be so.
    pub(super) fn is_known_since(&self, seen: u64, ago: Duration) -> bool {
        let was_so = match seen >= self.hears_since.load(Ordering::Relaxed) {
            true => seen.max(self.answered_in_hearing.load(Ordering::Relaxed)),
            false => seen,
        };
        self.now() < was_so.saturating_add(millis(ago))
    }

    pub(super) fn condition(&self) -> Condition {
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
    /// Whether clients are served: all of them, or those whose sessions are at hand.
    pub(crate) fn serves(&self) -> bool {
        match self {
            Self::Well | Self::Refuses { .. } => true,
            Self::Away { left, .. } => !left.is_zero(),
            Self::Unmet { .. } => false,
        }
    }

    /// What an operator should know of it; `None` if all is well.
    pub(crate) fn trouble(&self) -> Option<String> {
        match self {
            Self::Well => None,
            Self::Refuses { why } => Some(format!(
                "the store refuses: {why}; known sessions go on, new ones cannot be kept"
            )),
            Self::Unmet { why } => Some(format!("{why}, and has not been there since the start")),
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
