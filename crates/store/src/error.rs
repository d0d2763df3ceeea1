//! Errors of a store.

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
    /// It answered, and refused.
    #[error("the store refused: {why} ({said})")]
    Refused {
        /// Why not.
        why: Refusal,
        /// What it said.
        said: String,
    },
    /// The value is larger than a store accepts.
    #[error("{bytes} bytes are more than the {limit} that a store accepts")]
    TooLarge {
        /// The size of the value.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The stored data is not what Bowline writes.
    #[error("the stored data is damaged: {0}")]
    Damaged(String),
    /// Another process uses the file.
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

/// Why a store that answers refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its memory is full.
    #[error("it has no room")]
    NoRoom,
    /// It is a replica, or has too few of them.
    #[error("it accepts no writes")]
    ReadOnly,
    /// Its disk fails.
    #[error("it cannot save its data")]
    CannotSave,
    /// The disk with the file is full.
    #[error("its disk is full")]
    DiskFull,
    /// The disk with the file fails.
    #[error("its disk fails")]
    DiskFails,
    /// It asks for a password, or for a different one.
    #[error("it does not accept the credentials of this gateway")]
    Credentials,
    /// Its user lacks a permission that Bowline needs.
    #[error("its user lacks a permission for this")]
    Permission,
    /// Another reason, which its own message gives.
    #[error("for another reason")]
    Other,
}

// === impl StoreError ===

impl StoreError {
    /// The outcome's name in metrics.
    pub fn outcome(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Timeout(_) => "timeout",
            Self::Refused { .. } => "refused",
            Self::TooLarge { .. } => "too_large",
            Self::Damaged(_) => "damaged",
            Self::InUse { .. } | Self::UnusableFile { .. } | Self::NewerFile { .. } => "unusable",
        }
    }

    /// A store that cannot be reached.
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
            Self::ReadOnly => "set `url` in `[store]` to the primary, not a replica",
            Self::CannotSave => "check the disk of Redis, or switch saving off",
            Self::DiskFull => {
                "free space on the disk of `path` in `[store]`: Bowline keeps retrying"
            }
            Self::DiskFails => "check the disk of `path` in `[store]`: Bowline keeps retrying",
            Self::Credentials => "correct `user` and `password` in `[store]`",
            Self::Permission => {
                "give the `user` in `[store]` the permissions that docs/guides/scale-out.md lists"
            }
            Self::Other => {
                "read the message of Redis, and docs/guides/scale-out.md for what it must allow"
            }
        }
    }
}
