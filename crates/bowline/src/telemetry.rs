//! What the gateway tells of itself: numbers for machines, and short names for sessions in logs.

mod hash;
mod metrics;

pub(crate) use hash::SessionHash;
pub(crate) use metrics::{Answered, Metrics, StoreCounts};
