//! A client on stdin and stdout has what a client on HTTP has: its session, its streams, its recovery.
//!
//! Here belongs what is particular to lines: what goes in and out, in which order, within which bounds, and
//! what it means that a client leaves.

mod bounds;
mod conversations;
mod leaving;
mod losses;
mod signing_in;
mod wrapping;
