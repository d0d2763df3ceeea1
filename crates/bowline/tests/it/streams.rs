//! A stream is flushed at once, can be resumed, and never ends in silence.
//!
//! Here belongs whatever is about events on a stream: their ids, who reads them, what a server asks by them,
//! and streams that break.

mod events;
mod server_requests;
mod storms;
