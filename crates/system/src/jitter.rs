//! Random pauses, so that gateways and sessions that failed together do not retry together.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Between half of a duration and all of it.
#[must_use]
pub fn jittered(duration: Duration) -> Duration {
    duration.mul_f64(0.5 + random_fraction() / 2.0)
}

/// A number between 0 and 1 that is hard to predict.
#[must_use]
pub fn random_fraction() -> f64 {
    let random = RandomState::new().hash_one(0_u8);
    f64::from(u32::try_from(random >> 32).unwrap_or_default()) / f64::from(u32::MAX)
}
