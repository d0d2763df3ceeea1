//! One value from which everything about trying again follows.

use std::time::Duration;

use tokio::time::Instant;

use crate::upstream::random_fraction;

/// How much of the budget the first delay is, and how much no delay exceeds.
const FIRST_DELAY: u32 = 300;
const LONGEST_DELAY: u32 = 30;
/// How much of the budget the first attempt may take, and how much any: one that hangs leaves time
/// for another soon, and one that is slow is given the time once.
const FIRST_ATTEMPT: u32 = 30;
const LONGEST_ATTEMPT: u32 = 3;

/// The time that mending a session may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget {
    total: Duration,
    deadline: Instant,
    attempts: u32,
}

impl Budget {
    /// A budget of which `left` is left.
    pub(crate) fn new(total: Duration, left: Duration) -> Self {
        Self {
            total,
            deadline: Instant::now() + left,
            attempts: 0,
        }
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

    /// Waits before the next attempt: not at all before the first, then exponentially longer with
    /// full jitter, and at least as long as the server asked for. `false`: there is no time left.
    pub(crate) async fn next_attempt(&mut self, asked_for: Option<Duration>) -> bool {
        let delay = match self.attempts {
            0 => Duration::ZERO,
            done => {
                let longest = self.total / LONGEST_DELAY;
                let doubled = (self.total / FIRST_DELAY) * 2_u32.saturating_pow(done.min(16) - 1);
                longest.min(doubled).mul_f64(random_fraction())
            }
        };
        self.attempts += 1;
        let next = Instant::now() + delay.max(asked_for.unwrap_or_default());
        if next >= self.deadline {
            return false;
        }
        // Even a sleep of nothing would last until the clock's next tick.
        if next > Instant::now() {
            tokio::time::sleep_until(next).await;
        }
        true
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
}
