//! JSON-RPC error codes: the protocol's own, and Bowline's outside the reserved range.

/// The body is not JSON.
pub const PARSE_ERROR: i64 = -32700;
/// The body is JSON, but no valid request.
pub const INVALID_REQUEST: i64 = -32600;
/// There is no such method.
pub const METHOD_NOT_FOUND: i64 = -32601;
/// The parameters are not what the method wants.
pub const INVALID_PARAMS: i64 = -32602;
/// A fault of Bowline's own.
pub const INTERNAL_ERROR: i64 = -32603;
/// Only with HTTP 404, and only in protocol revisions that have sessions.
pub const SESSION_NOT_FOUND: i64 = -32001;
/// The request may have run, and is not safe to repeat.
pub const OUTCOME_UNKNOWN: i64 = -31001;
/// The server cannot be reached.
pub const UPSTREAM_UNAVAILABLE: i64 = -31002;
/// The caller has to sign in at the server.
pub const SIGN_IN_NEEDED: i64 = -31003;
/// The server did not answer in time.
pub const DEADLINE: i64 = -31004;
/// A limit is reached.
pub const OVERLOADED: i64 = -31005;
/// One server of several lost its session with this client, and the state in it.
pub const MEMBER_LOST: i64 = -31006;
/// The Language Server Protocol's code. MCP has none, because a client does not wait for a cancelled request.
pub const CANCELLED: i64 = -32800;

/// Whether Bowline says by this code why a server could not be asked, or what is not known of its answer.
pub fn is_about_server(code: i64) -> bool {
    (MEMBER_LOST..=OUTCOME_UNKNOWN).contains(&code)
}
