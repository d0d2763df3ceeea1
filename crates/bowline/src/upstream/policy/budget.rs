//! The recovery budget: one value from which all retry delays and attempt timeouts follow.

use std::time::Duration;

use bowline_system::jitter::random_fraction;
use tokio::time::Instant;

use crate::config::{Recovery, Server};
use crate::upstream::Upstream;

/// The first delay and the longest delay, as fractions of the budget (1/n).
const FIRST_DELAY: u32 = 300;
const LONGEST_DELAY: u32 = 30;
/// The time of the first attempt and of the longest attempt, as fractions of the budget. If the
/// first attempt hangs, a retry follows soon; a server that is only slow gets enough time later.
const FIRST_ATTEMPT: u32 = 30;
const LONGEST_ATTEMPT: u32 = 3;

/// Fractions of the budget, and minimums, for two other waits: an errand that no client waits for,
/// and the moment for which a client waits for a more precise status.
const ERRAND: u32 = 6;
const SHORTEST_ERRAND: Duration = Duration::from_secs(1);
/// What a process may not use of the budget for its start, so that the client's error can quote its stderr.
const LAST_WORDS: u32 = 12;
const MOMENT: u32 = 30;
const SHORTEST_MOMENT: Duration = Duration::from_millis(100);

/// The time that may be spent on recovering a session or one of its streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    total: Duration,
    deadline: Instant,
    attempts: u32,
    /// When the last attempt began.
    last: Instant,
}

impl Budget {
    /// A budget with the time `left` remaining.
    pub(crate) fn new(total: Duration, left: Duration) -> Self {
        let now = Instant::now();
        Self {
            total,
            deadline: now + left,
            attempts: 0,
            last: now,
        }
    }

    /// The full budget of a session or of one of its streams.
    pub(crate) fn of(upstream: &Upstream) -> Self {
        let total = upstream.budget();
        Self::new(total, total)
    }

    /// The connection of the last attempt has ended. The budget is full again if that attempt made
    /// progress or lasted as long as the whole budget. The next attempt is immediate only if this
    /// one lasted: otherwise a stream that breaks after every event would be retried without a
    /// pause.
    pub(crate) fn over(&mut self, got_somewhere: bool) {
        let now = Instant::now();
        let lasted = now.saturating_duration_since(self.last);
        if got_somewhere || lasted >= self.total {
            self.deadline = now + self.total;
        }
        if self.has_lasted() {
            self.attempts = 0;
        }
    }

    /// Whether the last attempt began longer ago than the longest delay.
    pub(crate) fn has_lasted(&self) -> bool {
        let lasted = Instant::now().saturating_duration_since(self.last);
        lasted >= self.total / LONGEST_DELAY
    }

    /// How long one attempt may take after this many failures: short at first, then longer.
    pub(crate) fn attempt(&self, failures: u32) -> Duration {
        let doubled = (self.total / FIRST_ATTEMPT) * 2_u32.saturating_pow(failures.min(16));
        doubled.min(self.patient_attempt())
    }

    /// How long an attempt may wait for its turn, so that there is time for the attempt itself.
    pub(crate) fn turn(&self) -> Duration {
        self.left().saturating_sub(self.patient_attempt())
    }

    /// The time that is left.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// How long one attempt may take if there is no other endpoint to try.
    pub(crate) fn patient_attempt(&self) -> Duration {
        longest_attempt(self.total).min(self.left())
    }

    /// When the next attempt may begin: the first immediately, then with exponential backoff and
    /// full jitter, and not before the time that the server asked for. `None` if no time is left.
    pub(crate) fn next_at(&mut self, asked_for: Option<Duration>) -> Option<Instant> {
        let delay = match self.attempts {
            0 => Duration::ZERO,
            done => {
                let longest = self.total / LONGEST_DELAY;
                let doubled = (self.total / FIRST_DELAY) * 2_u32.saturating_pow(done.min(16) - 1);
                longest.min(doubled).mul_f64(random_fraction())
            }
        };
        self.attempts = self.attempts.saturating_add(1);
        // A server may ask for a time that overflows.
        let next = Instant::now().checked_add(delay.max(asked_for.unwrap_or_default()))?;
        self.last = next;
        (next < self.deadline).then_some(next)
    }

    /// Waits for the next attempt. `false` if no time is left.
    pub(crate) async fn next_attempt(&mut self, asked_for: Option<Duration>) -> bool {
        let Some(next) = self.next_at(asked_for) else {
            return false;
        };
        until(next).await;
        true
    }
}

/// The longest attempt within this budget.
pub(crate) fn longest_attempt(total: Duration) -> Duration {
    total / LONGEST_ATTEMPT
}

/// How long an errand may take that no client waits for: a cancellation, or ending an upstream
/// session.
pub(crate) fn errand(recovery: &Recovery) -> Duration {
    (recovery.budget / ERRAND).max(SHORTEST_ERRAND)
}

/// How long a process may take to answer `initialize`.
pub(crate) fn start(recovery: &Recovery) -> Duration {
    recovery.budget - recovery.budget / LAST_WORDS
}

/// How long a client waits for a more precise status before it gets a less precise one.
pub(crate) fn moment(server: &Server) -> Duration {
    (server.recovery.budget / MOMENT).max(SHORTEST_MOMENT)
}

/// Waits until then. Does not sleep if that is now: even a sleep of zero would last until the next
/// tick of the timer.
pub(crate) async fn until(then: Instant) {
    if then > Instant::now() {
        tokio::time::sleep_until(then).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_first_attempt_is_at_once_and_all_fit_into_the_budget() {
        let total = Duration::from_secs(30);
        let started = Instant::now();
        let mut budget = Budget::new(total, total);
        assert!(budget.next_attempt(None).await);
        assert_eq!(started.elapsed(), Duration::ZERO);
        let mut attempts = 1;
        while budget.next_attempt(None).await {
            attempts += 1;
            assert!(budget.attempt(attempts) <= total / LONGEST_ATTEMPT);
        }
        // Timers have ticks of a millisecond, so the last wait may end on the deadline itself.
        assert!(started.elapsed() <= total, "{:?}", started.elapsed());
        assert!((8..500).contains(&attempts), "{attempts}");
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_found_out_soon_and_one_that_is_slow_is_waited_for_once() {
        let total = Duration::from_secs(30);
        let started = Instant::now();
        let mut budget = Budget::new(total, total);
        let (mut failures, mut longest, mut third) = (0, Duration::ZERO, None);
        while budget.next_attempt(None).await {
            let attempt = budget.attempt(failures);
            longest = longest.max(attempt);
            tokio::time::sleep(attempt).await;
            failures += 1;
            if failures == 3 {
                third = Some(started.elapsed());
            }
        }
        assert!(third.unwrap() <= total / 4, "{third:?}");
        assert!(longest >= total / 4, "{longest:?}");
        assert!(started.elapsed() <= total);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_asks_for_time_gets_it_if_there_is_any() {
        let started = Instant::now();
        let mut budget = Budget::new(Duration::from_secs(30), Duration::from_secs(30));
        assert!(budget.next_attempt(Some(Duration::from_secs(7))).await);
        assert_eq!(started.elapsed(), Duration::from_secs(7));
        assert!(!budget.next_attempt(Some(Duration::from_secs(60))).await);
    }

    #[tokio::test(start_paused = true)]
    async fn no_number_of_a_servers_is_too_large() {
        for asked_for in [Duration::MAX, Duration::from_secs(u64::MAX)] {
            let mut budget = Budget::new(Duration::from_secs(30), Duration::from_secs(30));
            assert!(!budget.next_attempt(Some(asked_for)).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn getting_somewhere_gives_all_the_time_but_no_leave_to_hurry() {
        let total = Duration::from_secs(30);
        let mut budget = Budget::new(total, total);
        let started = Instant::now();
        let mut attempts = 0;
        while started.elapsed() < total * 4 {
            assert!(budget.next_attempt(None).await);
            attempts += 1;
            // The stream breaks after its first event.
            budget.over(true);
        }
        assert!(attempts < 1000, "{attempts}");
        // An attempt that lasted is retried immediately, even if no event arrived.
        for got_somewhere in [true, false] {
            tokio::time::sleep(total * 2).await;
            budget.over(got_somewhere);
            assert_eq!(budget.next_at(None), Some(Instant::now()));
        }
        // Attempts that neither last nor make progress use up the budget.
        let started = Instant::now();
        while budget.next_attempt(None).await {
            budget.over(false);
        }
        assert!(started.elapsed() <= total, "{:?}", started.elapsed());
    }
}
