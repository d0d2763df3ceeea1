//! The `bowline` command as its users meet it: what it prints, and how it ends.

#![expect(
    clippy::panic,
    clippy::unwrap_used,
    reason = "what helpers meet fails the test"
)]

#[path = "cli/checking.rs"]
mod checking;
#[path = "cli/connecting.rs"]
mod connecting;
#[path = "cli/cycles.rs"]
mod cycles;
#[path = "cli/demonstrating.rs"]
mod demonstrating;
#[path = "cli/health.rs"]
mod health;
#[path = "cli/help.rs"]
mod help;
#[path = "cli/killing.rs"]
mod killing;
#[path = "cli/mistakes.rs"]
mod mistakes;
#[path = "cli/privacy.rs"]
mod privacy;
#[path = "cli/probing.rs"]
mod probing;
#[path = "cli/reloading.rs"]
mod reloading;
#[path = "cli/running.rs"]
mod running;
#[path = "cli/serving.rs"]
mod serving;
#[path = "cli/signing_in.rs"]
mod signing_in;
#[path = "cli/sockets.rs"]
mod sockets;
#[path = "cli/stopping.rs"]
mod stopping;
#[path = "cli/storing.rs"]
mod storing;
#[path = "cli/supervising.rs"]
mod supervising;
