//! Real children: none is left behind, whatever they, the gateway or the supervisor do.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what helpers meet fails the test"
)]

#[path = "children/dying.rs"]
mod dying;
#[path = "children/ending.rs"]
mod ending;
#[path = "children/kit.rs"]
mod kit;
#[path = "children/spawning.rs"]
mod spawning;
