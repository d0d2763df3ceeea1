//! Where the key of the grants' file lies.
//!
//! With the feature `keychain`, and on macOS and Windows always, that is the system's keychain, if it
//! answers when the key is made. A key file that is there counts in any case: what is sealed was sealed
//! with it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::store::sealed::{self, SealKeys, SealKeysError};

/// Where the key of the grants' file lies. `Display` is what an operator is told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// In a file that only its owner may read, made when it is needed first.
    KeyFile(PathBuf),
    /// In the system's keychain, made when it is needed first.
    #[cfg(any(feature = "keychain", target_os = "macos", windows))]
    Keychain,
}

impl KeySource {
    /// Where the key of this sealed file is, or is kept best on this machine.
    #[cfg(any(feature = "keychain", target_os = "macos", windows))]
    pub(super) fn best(sealed: &Path, key_file: &Path) -> Self {
        if key_file.exists() {
            return Self::KeyFile(key_file.to_owned());
        }
        // What is sealed is so with a key that is not in a file.
        if sealed.exists() {
            return Self::Keychain;
        }
        match super::keychain::answers() {
            Ok(()) => Self::Keychain,
            Err(reason) => {
                tracing::info!("no keychain is used, because it {reason}");
                Self::KeyFile(key_file.to_owned())
            }
        }
    }

    /// Where the key of this sealed file is, or is kept best on this machine.
    #[cfg(not(any(feature = "keychain", target_os = "macos", windows)))]
    pub(super) fn best(_sealed: &Path, key_file: &Path) -> Self {
        Self::KeyFile(key_file.to_owned())
    }

    /// The keys that seal this file.
    pub(super) fn keys(&self, sealed: &Path) -> Result<SealKeys, SealKeysError> {
        match self {
            Self::KeyFile(path) => sealed::kept_for(sealed, path),
            #[cfg(any(feature = "keychain", target_os = "macos", windows))]
            Self::Keychain => super::keychain::keys(sealed),
        }
    }
}

impl fmt::Display for KeySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyFile(path) => write!(f, "the key file {}", path.display()),
            #[cfg(any(feature = "keychain", target_os = "macos", windows))]
            Self::Keychain => f.write_str("a key in the system's keychain"),
        }
    }
}
