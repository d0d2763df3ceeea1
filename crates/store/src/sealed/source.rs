//! Where seal keys come from: a file that the operator names, or one that the file store creates for
//! itself. The environment is read by the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{NoRandomness, SealKeys};
use crate::{SESSIONS_FILE, private};

/// The key file beside the sessions' file.
const KEY_FILE: &str = "seal.key";

/// Why there are no seal keys.
#[derive(Debug, thiserror::Error)]
pub enum SealKeysError {
    /// There is no key at all.
    #[error("there is no seal key")]
    Empty,
    /// One of the keys is invalid.
    #[error("seal key number {number} is not 32 bytes in base64")]
    NotAKey {
        /// Which, from 1.
        number: usize,
    },
    /// The key file cannot be read or made.
    #[error("cannot use the key file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The content of the key file is invalid.
    #[error("in the key file {}", path.display())]
    InFile {
        /// The file.
        path: PathBuf,
        /// The problem.
        source: Box<Self>,
    },
    /// Sealed data exists, but its key is missing.
    #[error("{} is missing, and {} cannot be read without it", path.display(), sealed.display())]
    Lost {
        /// The key file.
        path: PathBuf,
        /// What it seals.
        sealed: PathBuf,
    },
    /// The data may be sealed with a key in the keychain, which could not be read.
    #[error("{} may be sealed with a key in the keychain, and that {reason}", sealed.display())]
    Keychain {
        /// What it seals.
        sealed: PathBuf,
        /// What is wrong with the keychain.
        reason: String,
    },
    /// No key could be made.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// The keys in a file, in the form that [`SealKeys::parse`] reads.
pub fn from_file(path: &Path) -> Result<SealKeys, SealKeysError> {
    read(path).map_err(|source| SealKeysError::File {
        path: path.to_owned(),
        source,
    })?
}

/// The keys beside the sessions file in this directory; created at the first start.
pub fn beside_sessions(directory: &Path) -> Result<SealKeys, SealKeysError> {
    kept_for(&directory.join(SESSIONS_FILE), &directory.join(KEY_FILE))
}

/// The keys in the file `path`, which seal the file `sealed`; created when neither file exists.
pub fn kept_for(sealed: &Path, path: &Path) -> Result<SealKeys, SealKeysError> {
    let failed = |source| SealKeysError::File {
        path: path.to_owned(),
        source,
    };
    match read(path) {
        Ok(keys) => return keys,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    // A new key would not open it. But another process may have created the key meanwhile, before `sealed`.
    if sealed.exists() {
        return read(path).unwrap_or_else(|_| {
            Err(SealKeysError::Lost {
                path: path.to_owned(),
                sealed: sealed.to_owned(),
            })
        });
    }
    let line = SealKeys::generate()? + "\n";
    let made = private::directory(path.parent().unwrap_or(path))
        .and_then(|()| private::write_new(path, line.as_bytes()));
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        // Another process may have been first: the key in the file counts.
        _ => from_file(path),
    }
}

fn read(path: &Path) -> io::Result<Result<SealKeys, SealKeysError>> {
    let text = fs::read_to_string(path)?;
    // Not an error: a secret that is mounted into a container often cannot have another mode.
    if private::is_open_to_others(path)? {
        let path = path.display();
        tracing::warn!(%path, "key file is accessible to other users: it must belong to this user (chmod 600), in a directory that nobody else can write to");
    }
    Ok(
        SealKeys::parse(&text).map_err(|source| SealKeysError::InFile {
            path: path.to_owned(),
            source: Box::new(source),
        }),
    )
}
