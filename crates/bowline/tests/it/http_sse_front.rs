//! A client of HTTP+SSE has what any client has: its session, its streams, its recovery.
//!
//! Here belongs what is particular to this transport: a stream that is the session, messages that find it by a
//! token, everything on that client's stream and nowhere else, and what it means that a stream ends.

mod bounds;
mod conversations;
mod gateways;
mod leaving;
mod losses;
mod signing_in;
mod tokens;
mod unread;
