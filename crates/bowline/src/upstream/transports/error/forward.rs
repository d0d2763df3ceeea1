//! A failed forward to another gateway.

use std::fmt;
use std::sync::Arc;

use crate::peers::PeerError;
use crate::proof::Proof;

/// Why a forward failed, and which gateway it was for.
#[derive(Debug)]
pub(crate) struct ForwardError {
    pub(in crate::upstream) owner: Arc<str>,
    pub(crate) error: PeerError,
}

// === impl ForwardError ===

impl ForwardError {
    /// What it proves.
    pub(crate) fn proof(&self) -> Proof {
        self.error.proof()
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            PeerError::Failed(failure) => f.write_str(&failure.what),
            error => write!(
                f,
                "the session lives in another gateway ({}): {error}",
                self.owner
            ),
        }
    }
}
