//! Bowline's promises, each tried from outside: real sockets, a file a promise.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod arrays;
mod batches;
mod callers;
mod client;
mod cookies;
mod faults;
mod ids;
mod lifetime;
mod limits;
mod refusals;
mod sticky;
mod streams;
mod verbatim;
