//! What the machine could do. Promises about time are judged by a clock that runs slower while the machine is too busy for
//! all that wants to run: what a gateway had no processor for, it could not do.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

/// Where Linux says for how long something had to wait for a processor, and how often that is looked at.
const PRESSURE: &str = "/proc/pressure/cpu";
const EVERY: Duration = Duration::from_secs(2);
/// How slow the clock is at most: one second of it in so many.
const SLOWEST: u32 = 4;

/// The machine's clock, from the beginning of a run.
#[derive(Debug)]
pub(crate) struct Machine {
    origin: Instant,
    pace: Mutex<Pace>,
}

/// How time passed: at which moments how much of it counted, in this order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace(Vec<(Duration, Duration)>);

impl Machine {
    pub(crate) fn new(origin: Instant) -> Self {
        Self {
            origin,
            pace: Mutex::default(),
        }
    }

    /// Looks at it for ever.
    pub(crate) async fn watch(&self) -> std::convert::Infallible {
        let Some(mut before) = stalled() else {
            bowline_testbed::skip("chaos: no /proc/pressure/cpu: a busy machine gets NO more time");
            return std::future::pending().await;
        };
        let mut seen = self.origin.elapsed();
        self.pace.lock().0.push((seen, seen));
        loop {
            sleep(EVERY).await;
            let (now, stalled) = (self.origin.elapsed(), stalled().unwrap_or(before));
            let (passed, lost) = (now - seen, stalled.saturating_sub(before));
            self.pace.lock().add(passed, lost);
            (seen, before) = (now, stalled);
        }
    }

    /// How time passed so far.
    pub(crate) fn pace(&self) -> Pace {
        self.pace.lock().clone()
    }

    /// Sleeps for so long by this clock. What was not looked at yet counts as the last that was.
    pub(crate) async fn sleep(&self, time: Duration) {
        let share = self.pace.lock().latest_share();
        sleep(time.div_f64(share)).await;
    }
}

/// For how long something had to wait for a processor since the machine was started.
fn stalled() -> Option<Duration> {
    let text = std::fs::read_to_string(PRESSURE).ok()?;
    let some = text.lines().find(|line| line.starts_with("some"))?;
    let total = some.rsplit('=').next()?.trim().parse().ok()?;
    Some(Duration::from_micros(total))
}

impl Pace {
    pub(crate) fn add(&mut self, passed: Duration, lost: Duration) {
        let (at, counted) = self.0.last().copied().unwrap_or_default();
        let counts = passed.saturating_sub(lost).max(passed / SLOWEST);
        self.0.push((at + passed, counted + counts));
    }

    /// How much of the time counted lately.
    fn latest_share(&self) -> f64 {
        match self.0.as_slice() {
            [.., (from, before), (to, after)] => (*after - *before).div_duration_f64(*to - *from),
            _ => 1.0,
        }
    }

    /// How much of the time between these moments counts.
    pub(crate) fn between(&self, from: Duration, to: Duration) -> Duration {
        self.until(to).saturating_sub(self.until(from))
    }

    /// How much counts until then. What nobody looked at counts in full.
    fn until(&self, moment: Duration) -> Duration {
        let place = self.0.partition_point(|(at, _)| *at <= moment);
        let Some((at, counted)) = place.checked_sub(1).map(|place| self.0[place]) else {
            return moment;
        };
        let share = match self.0.get(place) {
            Some((next, more)) => (*more - counted).div_duration_f64(*next - at),
            None => 1.0,
        };
        counted + (moment - at).mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_less_while_the_machine_is_too_busy() {
        let seconds = Duration::from_secs;
        let mut pace = Pace::default();
        assert_eq!(pace.between(seconds(3), seconds(8)), seconds(5));
        pace.add(seconds(10), Duration::ZERO);
        // Half of it was lost, then all of it.
        pace.add(seconds(10), seconds(5));
        pace.add(seconds(8), seconds(8));
        assert_eq!(pace.between(seconds(0), seconds(10)), seconds(10));
        assert_eq!(pace.between(seconds(8), seconds(14)), seconds(4));
        assert_eq!(pace.between(seconds(20), seconds(28)), seconds(2));
        assert_eq!(pace.between(seconds(28), seconds(30)), seconds(2));
        assert_eq!(pace.between(seconds(30), seconds(28)), Duration::ZERO);
        assert!((pace.latest_share() - 0.25).abs() < 1e-9);
    }
}
