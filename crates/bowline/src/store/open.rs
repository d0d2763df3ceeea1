//! From the configuration to a store and the keys that seal what is in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::sealed::{self, SealKeys, SealKeysError};
use super::{File, Memory, Redis, RedisPlace, Store, StoreError};
use crate::config::{self, Password, RedisStore, StoreKind};

/// Why there is no store. A Redis that is not there yet is no reason: it is told by
/// [`Store::ping`].
#[derive(Debug, thiserror::Error)]
pub enum OpenStoreError {
    /// Whoever can read a shared store could read every session.
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

/// Opens the store. What never leaves the process needs no keys.
///
/// Must be called on the runtime that will use it.
pub(crate) async fn open(
    config: &config::Store,
) -> Result<(Store, Option<SealKeys>), OpenStoreError> {
    match &config.kind {
        StoreKind::Memory => Ok((Store::Memory(Memory::new()), None)),
        StoreKind::File { path } => {
            let keys = match given_keys(config)? {
                Some(keys) => keys,
                None => sealed::beside_sessions(path)?,
            };
            let file = File::open(path, config.timeout).await?;
            Ok((Store::File(file), Some(keys)))
        }
        StoreKind::Redis(redis) => {
            let keys = given_keys(config)?.ok_or(OpenStoreError::NoSealKeys)?;
            let redis = Redis::new(place(redis, config)?)?;
            Ok((Store::Redis(Box::new(redis)), Some(keys)))
        }
    }
}

fn given_keys(config: &config::Store) -> Result<Option<SealKeys>, SealKeysError> {
    match (&config.seal_keys, &config.seal_keys_file) {
        (Some(keys), _) => Ok(Some(keys.clone())),
        (None, Some(path)) => sealed::from_file(path).map(Some),
        (None, None) => Ok(None),
    }
}

fn place(redis: &RedisStore, config: &config::Store) -> Result<RedisPlace, OpenStoreError> {
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
    Ok(RedisPlace {
        url: redis.url.to_string(),
        user: redis.user.clone(),
        password,
        trust: trust.transpose()?,
        prefix: redis.prefix.clone(),
        timeout: config.timeout,
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
