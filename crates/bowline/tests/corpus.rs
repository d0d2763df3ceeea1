//! Replays what the configuration's fuzzer was given to begin with, and what it found.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and its output is shown"
)]

#[path = "../../../fuzz/checks/config.rs"]
mod config;
#[path = "../../../fuzz/checks/replay.rs"]
mod replay;

#[test]
fn configurations() {
    replay::replay("config", config::check);
}
