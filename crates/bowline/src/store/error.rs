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
    /// It answered, and would not: a wrong password, no permission, no room.
    #[error("the store refused: {0}")]
    Refused(String),
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

impl StoreError {
    /// A store that is not there.
    pub(super) fn unreachable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unreachable(error.into())
    }
}
