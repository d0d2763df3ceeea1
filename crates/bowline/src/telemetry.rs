//! What the gateway tells of itself: numbers for machines, and short names for sessions in logs.

mod hash;
mod metrics;

pub(crate) use hash::SessionHash;
pub(crate) use metrics::{
    Description, EndpointSnapshot, Metrics, ServerMetrics, ServerSnapshot, Snapshot, StoreMetrics,
    StoreSnapshot,
};
