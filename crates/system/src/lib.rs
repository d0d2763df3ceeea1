//! What Bowline takes from the machine that it runs on: the date, chance, sockets, file
//! descriptors, the privacy of a process, and what a terminal obeys.
//!
//! Every other crate of Bowline may call this one. It knows nothing of MCP, of HTTP or of the
//! configuration, connects to no other machine, and calls no other crate of Bowline.

pub mod clock;
pub mod descriptors;
pub mod jitter;
pub mod printable;
pub mod privacy;
pub mod socket;
pub mod socket_file;
pub mod socket_owner;
