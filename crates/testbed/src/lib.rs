//! The servers, clients and proxies that Bowline is tested with. For development only; nothing here is
//! shipped.

pub mod answering;
pub mod cable;
pub mod certificates;
pub mod client;
pub mod counting;
pub mod distant;
pub mod everything;
pub mod faulty;
pub mod haproxy;
pub mod leaks;
pub mod redis;
pub mod scripted;
mod skipped;
pub mod stdio;
pub mod strict;
pub mod tls;

pub use self::skipped::skip;
