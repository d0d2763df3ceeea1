//! Where the key of the grants' file lies.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::store::sealed::{self, SealKeys, SealKeysError};

/// Where the key of the grants' file lies. `Display` is what an operator is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// In a file that only its owner may read, made when it is needed first.
    KeyFile(PathBuf),
}

impl KeySource {
    /// Where the key of this file is kept best on this machine.
    pub(super) fn best(_sealed: &Path, key_file: &Path) -> Self {
        Self::KeyFile(key_file.to_owned())
    }

    /// The keys that seal this file.
    pub(super) fn keys(&self, sealed: &Path) -> Result<SealKeys, SealKeysError> {
        match self {
            Self::KeyFile(path) => sealed::kept_for(sealed, path),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyFile(path) => write!(f, "the key file {}", path.display()),
        }
    }
}
