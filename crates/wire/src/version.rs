//! Protocol revisions that have sessions.

/// The revisions of the session era that Bowline carries, oldest first.
pub const SUPPORTED: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// Whether clients may name this revision in `MCP-Protocol-Version`.
pub fn is_supported(version: &str) -> bool {
    SUPPORTED.contains(&version)
}

/// Whether messages of this revision may come in batches. Only one has them.
pub fn has_batches(version: &str) -> bool {
    version == "2025-03-26"
}

/// Whether a server of this revision expects `MCP-Protocol-Version` on every later request.
///
/// The header came with 2025-06-18. Revisions are dates, so they compare as text.
pub fn wants_header(version: &str) -> bool {
    version >= "2025-06-18"
}
