//! One value from which everything about trying again follows.

use std::time::Duration;

use bowline_system::jitter::random_fraction;
use tokio::time::Instant;

use super::Upstream;
use crate::config::{Recovery, Server};

/// How much of the budget the first delay is, and how much no delay exceeds.
const FIRST_DELAY: u32 = 300;
const LONGEST_DELAY: u32 = 30;
/// How much of the budget the first attempt may take, and how much any: one that hangs leaves time
/// for another soon, and one that is slow is given the time once.
const FIRST_ATTEMPT: u32 = 30;
const LONGEST_ATTEMPT: u32 = 3;

/// How much of the budget an errand may take that nobody waits for, and a moment in which a client waits
/// to hear the best that can be said; and what neither falls below.
const ERRAND: u32 = 6;
const SHORTEST_ERRAND: Duration = Duration::from_secs(1);
const MOMENT: u32 = 30;
const SHORTEST_MOMENT: Duration = Duration::from_millis(100);

/// The time that recovering a session, or a stream of it, may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    total: Duration,
    deadline: Instant,
    attempts: u32,
    /// When the last attempt began.
    last: Instant,
}

impl Budget {
    /// A budget of which `left` is left.
    pub(crate) fn new(total: Duration, left: Duration) -> Self {
        let now = Instant::now();
        Self {
            total,
            deadline: now + left,
            attempts: 0,
            last: now,
        }
    }

    /// All that there is for a session, or for a stream of it.
    pub(crate) fn of(upstream: &Upstream) -> Self {
        let total = upstream.budget();
        Self::new(total, total)
    }

    /// What the last attempt brought is over. If it got somewhere, or lasted as long as everything may
    /// take, all the time is there again. The next attempt is at once only if this one has lasted:
    /// otherwise what breaks after every little step would be tried without a pause.
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

    /// Whether the last attempt is further back than the longest delay.
    pub(crate) fn has_lasted(&self) -> bool {
        let lasted = Instant::now().saturating_duration_since(self.last);
        lasted >= self.total / LONGEST_DELAY
    }

    /// How long one attempt may take after so many that failed: short at first, then longer.
    pub(crate) fn attempt(&self, failures: u32) -> Duration {
        let doubled = (self.total / FIRST_ATTEMPT) * 2_u32.saturating_pow(failures.min(16));
        doubled.min(self.patient_attempt())
    }

    /// How long one attempt may take where there is nothing else to try meanwhile.
    pub(crate) fn patient_attempt(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        (self.total / LONGEST_ATTEMPT).min(left)
    }

    /// When the next attempt may begin: the first at once, then after exponentially longer delays with
    /// full jitter, and not before the time that the server asked for. `None`: there is no time left.
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
        // A server may ask for more time than there will ever be.
        let next = Instant::now().checked_add(delay.max(asked_for.unwrap_or_default()))?;
        self.last = next;
        (next < self.deadline).then_some(next)
    }

    /// Waits for the next attempt. `false`: there is no time left.
    pub(crate) async fn next_attempt(&mut self, asked_for: Option<Duration>) -> bool {
        let Some(next) = self.next_at(asked_for) else {
            return false;
        };
        until(next).await;
        true
    }
}

/// How long an errand may take that nobody waits for: a cancel, the end of an upstream session.
pub(crate) fn errand(recovery: &Recovery) -> Duration {
    (recovery.budget / ERRAND).max(SHORTEST_ERRAND)
}

/// How long a client waits for a status that tells more, before it gets one that tells less.
pub(crate) fn moment(server: &Server) -> Duration {
    (server.recovery.budget / MOMENT).max(SHORTEST_MOMENT)
}

/// Waits until then; not at all if that is now, because even a sleep of nothing would last until the
/// clock's next tick.
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
            // It breaks as soon as it has said something.
            budget.over(true);
        }
        assert!(attempts < 1000, "{attempts}");
        // What lasted is gone on with at once, even if it was silent.
        for got_somewhere in [true, false] {
            tokio::time::sleep(total * 2).await;
            budget.over(got_somewhere);
            assert_eq!(budget.next_at(None), Some(Instant::now()));
        }
        // What neither lasts nor says anything is given up.
        let started = Instant::now();
        while budget.next_attempt(None).await {
            budget.over(false);
        }
        assert!(started.elapsed() <= total, "{:?}", started.elapsed());
    }
}
