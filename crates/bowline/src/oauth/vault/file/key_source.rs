//! Where the key of the grants file is.
//!
//! With the feature `keychain`, and on macOS and Windows always, it is in the system's keychain, if that
//! answers when the key is created. An existing key file is always used: the grants file was sealed with it.

use std::fmt;
use std::path::{Path, PathBuf};

use bowline_store::sealed::{self, SealKeys, SealKeysError};

/// Where the key of the grants file is. `Display` is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// In a file that only its owner may read, created when it is first needed.
    KeyFile(PathBuf),
    /// In the system's keychain, created when it is first needed.
    #[cfg(any(feature = "keychain", target_os = "macos", windows))]
    Keychain,
}

impl KeySource {
    /// Where the key of this sealed file is, or the best place for a new key on this machine.
    #[cfg(any(feature = "keychain", target_os = "macos", windows))]
    pub(super) fn best(sealed: &Path, key_file: &Path) -> Self {
        if key_file.exists() {
            return Self::KeyFile(key_file.to_owned());
        }
        // There is no key file, so the key must be in the keychain.
        if sealed.exists() {
            return Self::Keychain;
        }
        match super::keychain::answers() {
            Ok(()) => Self::Keychain,
            Err(reason) => {
                tracing::info!("keychain not used: it {reason}");
                Self::KeyFile(key_file.to_owned())
            }
        }
    }

    /// Where the key of this sealed file is, or the best place for a new key on this machine.
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
