//! From settings to a store and the keys that seal its values.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sealed::{self, SealKeys, SealKeysError};
use crate::{File, Memory, Redis, RedisAddress, Store, StoreError};

/// Which store to open, and the keys that seal what is in it.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// Where the store is.
    pub place: StoreAddress,
    /// The longest that one operation may take.
    pub timeout: Duration,
    /// The seal keys, if they are given directly.
    pub seal_keys: Option<SealKeys>,
    /// The file that has the seal keys otherwise.
    pub seal_keys_file: Option<PathBuf>,
}

/// Where a store is.
#[derive(Clone, Debug)]
pub enum StoreAddress {
    /// In this process; its content ends with the process.
    Memory,
    /// In a file of this machine, for one gateway.
    File {
        /// The directory of the file.
        directory: PathBuf,
    },
    /// In a Redis or Valkey, for any number of gateways.
    Redis(RedisSettings),
}

/// How to reach a Redis or Valkey.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// `redis://` or `rediss://`, without credentials.
    pub url: String,
    /// The user to sign in as.
    pub user: Option<String>,
    /// The password of that user.
    pub password: Option<Password>,
    /// The certificates (PEM) to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// What every key begins with.
    pub prefix: String,
}

/// A password, or the file that has it. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub enum Password {
    /// The password itself.
    Written(String),
    /// A file whose content is the password; a line break at its end does not count.
    File(PathBuf),
}

/// Why a store was not opened. A Redis that is not reachable yet is no reason: [`Store::ping`] reports
/// that.
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// There is no seal key: without one, anyone who can read the shared store could read every session.
    #[error("sessions in Redis are sealed, and there is no key to seal them with")]
    NoSealKeys,
    /// The keys cannot be used.
    #[error(transparent)]
    SealKeys(#[from] SealKeysError),
    /// A file that the configuration names cannot be read.
    #[error("cannot read `{key}` {}", path.display())]
    Read {
        /// The configuration's name for it.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store itself.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Opens the store. A store that never leaves the process needs no keys.
///
/// Must be called on the runtime that will use it.
pub async fn open(settings: &StoreSettings) -> Result<(Store, Option<SealKeys>), OpenStoreError> {
    match &settings.place {
        StoreAddress::Memory => Ok((Store::Memory(Memory::new()), None)),
        StoreAddress::File { directory } => {
            let keys = match given_keys(settings)? {
                Some(keys) => keys,
                None => sealed::beside_sessions(directory)?,
            };
            let file = File::open(directory, settings.timeout).await?;
            Ok((Store::File(file), Some(keys)))
        }
        StoreAddress::Redis(redis) => {
            let keys = given_keys(settings)?.ok_or(OpenStoreError::NoSealKeys)?;
            let redis = Redis::new(redis_address(redis, settings.timeout)?)?;
            Ok((Store::Redis(Box::new(redis)), Some(keys)))
        }
    }
}

fn given_keys(settings: &StoreSettings) -> Result<Option<SealKeys>, SealKeysError> {
    match (&settings.seal_keys, &settings.seal_keys_file) {
        (Some(keys), _) => Ok(Some(keys.clone())),
        (None, Some(path)) => sealed::from_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

fn redis_address(redis: &RedisSettings, timeout: Duration) -> Result<RedisAddress, OpenStoreError> {
    let password = match &redis.password {
        None => None,
        Some(Password::Written(password)) => Some(password.clone()),
        Some(Password::File(path)) => {
            let text = read("password_file", path, |path| fs::read_to_string(path))?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
    };
    let trust = redis.ca_file.as_deref();
    let trust = trust.map(|path| read("ca_file", path, |path| fs::read(path)));
    Ok(RedisAddress {
        url: redis.url.clone(),
        user: redis.user.clone(),
        password,
        trust: trust.transpose()?,
        prefix: redis.prefix.clone(),
        timeout,
    })
}

fn read<T>(
    key: &'static str,
    path: &Path,
    read: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, OpenStoreError> {
    read(path).map_err(|source| OpenStoreError::Read {
        key,
        path: path.to_owned(),
        source,
    })
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Written(_) => f.write_str("Password(…)"),
            Self::File(path) => write!(f, "Password({})", path.display()),
        }
    }
}
