//! Why a store could not do, or could not say, what it was asked.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

/// What is wrong with a store. None of these means that something is absent.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or the disk fails.
    #[error("the store cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// It did not answer in time.
    #[error("the store did not answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// It answered, and would not.
    #[error("the store refused: {why} ({said})")]
    Refused {
        /// Why not.
        why: Refusal,
        /// What it said.
        said: String,
    },
    /// More than a store is meant for.
    #[error("{bytes} bytes are more than the {limit} that a store takes")]
    TooLarge {
        /// What was to be written.
        bytes: usize,
        /// What may be.
        limit: usize,
    },
    /// What is there is not what Bowline writes.
    #[error("what is in the store is damaged: {0}")]
    Damaged(String),
    /// Another process has the file.
    #[error("{} is in use by another gateway", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The file is not one that this Bowline can use; it was left as it is.
    #[error("{} cannot be read: {reason}", path.display())]
    UnusableFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer Bowline wrote the file; it was left as it is.
    #[error("{} was written by a newer Bowline (layout {found}, and this one knows {known})", path.display())]
    NewerFile {
        /// The file.
        path: PathBuf,
        /// Its layout.
        found: u64,
        /// Ours.
        known: u64,
    },
}

/// Why a store that answers does not do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its memory is full.
    #[error("it has no room")]
    NoRoom,
    /// It is a replica, or has too few of them.
    #[error("it takes no writes")]
    ReadOnly,
    /// Its disk fails.
    #[error("it cannot save what it has")]
    CannotSave,
    /// The disk that the file lies on is full.
    #[error("its disk is full")]
    DiskFull,
    /// The disk that the file lies on fails.
    #[error("its disk fails")]
    DiskFails,
    /// It asks for a password, or for another one.
    #[error("it does not let this gateway in")]
    Credentials,
    /// Its user may do less than Bowline does.
    #[error("its user may not do this")]
    Permission,
    /// Something else, which it says itself.
    #[error("it would not")]
    Other,
}

// === impl StoreError ===

impl StoreError {
    /// The outcome's name in metrics.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Timeout(_) => "timeout",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
            Self::Damaged(_) => "damaged",
            Self::InUse { .. } | Self::UnusableFile { .. } | Self::NewerFile { .. } => "unusable",
        }
    }

    /// A store that is not there.
    pub(super) fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable(error.into())
    }
}

// === impl Refusal ===

impl Refusal {
    /// What to do about it.
    #[must_use]
    pub fn advice(self) -> &'static str {
        match self {
            Self::NoRoom => "give Redis more memory (`maxmemory`), or let sessions end sooner",
            Self::ReadOnly => "let `url` in `[store]` name the primary, not a replica",
            Self::CannotSave => "see to the disk of Redis, or let it save nothing",
            Self::DiskFull => {
                "make room on the disk of `path` in `[store]`: it is tried again all the time"
            }
            Self::DiskFails => {
                "see to the disk of `path` in `[store]`: it is tried again all the time"
            }
            Self::Credentials => "correct `user` and `password` in `[store]`",
            Self::Permission => {
                "let the `user` in `[store]` do what Bowline does: docs/guides/scale-out.md lists it"
            }
            Self::Other => {
                "see what Redis says, and docs/guides/scale-out.md for what it must allow"
            }
        }
    }
}
