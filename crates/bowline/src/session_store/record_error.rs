//! Why a session's record cannot be used.

use thiserror::Error;

/// The layout of records that this Bowline writes; it reads this one and older ones.
pub(crate) const LAYOUT: u8 = 1;

/// Why a record cannot be used.
#[derive(Debug, Error)]
pub(crate) enum BadRecord {
    /// The position only: the content may be secret.
    #[error("a session's record cannot be read from byte {0} on")]
    Malformed(usize),
    #[error("a session was written by a newer Bowline (layout {0}, and this one knows {LAYOUT})")]
    Newer(u8),
    #[error("a session's record has an impossible {0}")]
    Impossible(&'static str),
}

// === impl BadRecord ===

impl From<serde_json::Error> for BadRecord {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(error.column())
    }
}
