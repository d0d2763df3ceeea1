//! Bowline's promises, each tried from outside, on real sockets: a folder a promise. The head of a folder's
//! file says what belongs there; what tests share is in `kit`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod answers;
mod bounds;
mod callers;
mod http_sse;
mod http_sse_front;
mod interop;
mod kit;
mod matrix;
mod oauth;
mod operations;
mod peers;
mod recovery;
mod sessions;
mod stdio;
mod stdio_front;
mod stores;
mod streams;
mod tls;
mod union;
