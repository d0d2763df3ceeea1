//! Sessions outlive their gateway: in a file, or in a Redis that several gateways share, for better or worse.
//!
//! Here belongs whatever needs a store other than memory, and whatever takes more than one gateway.

mod across_calls;
mod across_drain;
mod across_scenarios;
mod across_streams;
mod away;
mod fleet;
mod full_disk;
mod hostile;
mod kept;
mod metrics;
mod restored;
mod rotation;
mod shared;
mod shown_elsewhere;
mod unfit;
mod unrenewed;
