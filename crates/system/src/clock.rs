//! The one place that reads the wall clock: cookies expire at dates, not after durations, and so do
//! sessions that outlive a process.
//!
//! With the feature `test-util`, dates follow tokio's clock, so that a test can pause and advance them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
#[must_use]
pub fn unix_seconds() -> i64 {
    i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
#[must_use]
pub fn unix_millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

/// How far dates have moved ahead of timers since the first call. Timers stand still while the machine
/// sleeps, so this grows by the time that it slept. It also changes when somebody sets the clock.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place"
)]
pub fn ahead_of_timers() -> Duration {
    use std::sync::LazyLock;

    static START: LazyLock<(Duration, std::time::Instant)> =
        LazyLock::new(|| (wall_clock(), std::time::Instant::now()));
    let (start, began) = *START;
    wall_clock().saturating_sub(start + began.elapsed())
}

#[cfg(not(feature = "test-util"))]
fn since_1970() -> Duration {
    wall_clock()
}

#[cfg(feature = "test-util")]
fn since_1970() -> Duration {
    use std::sync::LazyLock;

    // A standard instant: tokio's may be paused in the test that comes first, and another test's clock
    // counts from another point.
    #[expect(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "this is the one place"
    )]
    static START: LazyLock<(Duration, std::time::Instant)> =
        LazyLock::new(|| (wall_clock(), std::time::Instant::now()));
    let (start, began) = *START;
    start + (tokio::time::Instant::now().into_std() - began)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn wall_clock() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}
