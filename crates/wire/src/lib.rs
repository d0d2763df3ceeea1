//! Bowline's wire formats: messages, ids, events and headers.
//!
//! Everything here is a pure function of bytes: no sockets, no clock, no tasks. The gateway inspects
//! what passes with these types and forwards the same bytes; it never re-serializes a message.

pub mod batch;
pub mod certificate;
pub mod codes;
pub mod compose;
pub mod header_policy;
pub mod http1;
pub mod id;
pub mod line;
pub mod media;
pub mod members;
pub mod message;
pub mod names;
pub mod scan;
pub mod skip;
pub mod sse;
pub mod version;

/// Names of the headers that the streamable HTTP transport defines, in lower case.
pub mod header {
    use http::HeaderName;

    /// Carries a session's id, on either side of the gateway (never the same value on both).
    pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
    /// The protocol revision a client speaks after `initialize`.
    pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
    /// The event after which a broken stream is resumed.
    pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
    /// Tells reverse proxies in front of Bowline not to buffer events.
    pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
}
