//! What the tests share: a client, gateways to put in front of fakes, and the stages that several tests play
//! on. What a test needs of a server is in `crates/testbed`; nothing here is a test.

pub(crate) mod across;
pub(crate) mod asking;
pub(crate) mod browser;
pub(crate) mod cable;
pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod fake;
pub(crate) mod front;
pub(crate) mod gateway;
pub(crate) mod heard;
pub(crate) mod log;
pub(crate) mod messages;
pub(crate) mod opened;
pub(crate) mod programs;
pub(crate) mod protected;
pub(crate) mod replicas;
pub(crate) mod signing;
pub(crate) mod sse;
pub(crate) mod sse_server;
pub(crate) mod stage;
pub(crate) mod stores;
pub(crate) mod wait;
pub(crate) mod wired;
