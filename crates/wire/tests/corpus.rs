//! Replays what the fuzzers of this crate's bytes were given to begin with, and what they found.

#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and its output is shown"
)]

#[path = "../../../fuzz/checks/headers.rs"]
mod headers;
#[path = "../../../fuzz/checks/http1.rs"]
mod http1;
#[path = "../../../fuzz/checks/message.rs"]
mod message;
#[path = "../../../fuzz/checks/replay.rs"]
mod replay;
#[path = "../../../fuzz/checks/sse.rs"]
mod sse;

#[test]
fn messages() {
    replay::replay("message", message::check);
}

#[test]
fn event_streams() {
    replay::replay("sse", sse::check);
}

#[test]
fn answers() {
    replay::replay("http1", http1::check);
}

#[test]
fn header_values() {
    replay::replay("headers", headers::check);
}
