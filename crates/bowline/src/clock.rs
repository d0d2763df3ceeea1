//! The one place that reads the wall clock: cookies expire at dates, not after durations, and so do
//! sessions that outlive a process.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> i64 {
    i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(not(test))]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// In unit tests dates go on as tokio's clock does, so that a test can pause and move them.
#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place"
)]
fn since_1970() -> Duration {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<(Duration, Instant)> = LazyLock::new(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        (now.unwrap_or_default(), Instant::now())
    });
    let (start, began) = *START;
    start + (tokio::time::Instant::now().into_std() - began)
}
