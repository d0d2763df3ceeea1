//! JSON-RPC error codes: the protocol's own, and Bowline's outside the reserved range.

pub(crate) const PARSE_ERROR: i64 = -32700;
pub(crate) const INVALID_REQUEST: i64 = -32600;
pub(crate) const INTERNAL_ERROR: i64 = -32603;
/// Only ever with 404, in the session era.
pub(crate) const SESSION_NOT_FOUND: i64 = -32001;
pub(crate) const OUTCOME_UNKNOWN: i64 = -31001;
pub(crate) const UPSTREAM_UNAVAILABLE: i64 = -31002;
pub(crate) const SIGN_IN_NEEDED: i64 = -31003;
pub(crate) const DEADLINE: i64 = -31004;
pub(crate) const OVERLOADED: i64 = -31005;
/// As in the Language Server Protocol; MCP has none, because nobody waits for it.
pub(crate) const CANCELLED: i64 = -32800;
