//! Why a session's record cannot be used.

use thiserror::Error;

/// The layout of records that this Bowline writes; it reads this one and older ones.
pub(crate) const LAYOUT: u8 = 1;

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub(crate) enum BadRecord {
    /// The position only: the content may be secret.
    #[error("a session's record is malformed at byte {0}")]
    Malformed(usize),
    #[error(
        "a session's record was written by a newer Bowline (layout {0}; this one reads up to {LAYOUT})"
    )]
    Newer(u8),
    #[error("a session's record has an invalid {0}")]
    Impossible(&'static str),
}

// === impl BadRecord ===

impl From<serde_json::Error> for BadRecord {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.column())
    }
}
