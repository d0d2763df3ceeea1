//! Bowline's bytes: what a message, an id, an event and a header look like on the wire.
//!
//! Everything here is a pure function of bytes: no sockets, no clock, no tasks. The gateway peeks
//! at what passes with these types and hands the same bytes on; it never re-serialises a message.

pub mod batch;
pub mod compose;
pub mod header_policy;
pub mod http1;
pub mod id;
pub mod media;
pub mod message;
pub mod scan;
pub mod sse;
pub mod version;

/// Names of the headers that the streamable HTTP transport defines, in lower case.
pub mod header {
    use http::HeaderName;

    /// Carries a session's id, on either side of the gateway (never the same value on both).
    pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    /// The protocol revision a client speaks after `initialize`.
    pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    /// Where a broken stream is to be resumed.
    pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
    /// Tells reverse proxies before us not to hold events back.
    pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
}
