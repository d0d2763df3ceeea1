//! Grants in one sealed file that processes of this machine share: whoever signs in on the command
//! line is signed in at the gateway beside it.
//!
//! Every write reads the file first, under a lock, and replaces it as a whole, so nobody overwrites
//! what another process wrote; every load reads it anew. A file that cannot be read is an error, and
//! stays.

mod key_source;
#[cfg(any(feature = "keychain", target_os = "macos", windows))]
mod keychain;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

pub(crate) use self::key_source::KeySource;
use super::slot::{self, Slot, Slots};
use super::{LOOK_EVERY, VaultError};
use crate::store::sealed::SealKeys;
use crate::store::{Key, Version, private};

/// The sealed file's name.
const GRANTS_FILE: &str = "grants.sealed";
/// Where its key is, if it is in a file.
const KEY_FILE: &str = "grants.key";
/// Its lock's name. The file itself cannot be locked, because it is replaced.
const LOCK_FILE: &str = "grants.lock";
/// How long a write waits for another process's, which takes milliseconds.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// Bound into the seal, so that nothing else is taken for the file.
const PLACE: &[u8] = b"grants file";

/// Grants in one sealed file.
pub(crate) struct File {
    directory: PathBuf,
    keys: SealKeys,
    key_source: KeySource,
    /// What the file was when it was looked at last.
    seen: Mutex<Option<Stamp>>,
}

/// When the file was written, and how long it is. Every write makes another file.
type Stamp = (SystemTime, u64);

// === impl File ===

impl File {
    /// The vault in this directory, which is made if it is not there. Fails at once on a file that
    /// cannot be read.
    pub(crate) fn open(directory: &Path, key_source: KeySource) -> Result<Self, VaultError> {
        private::directory(directory).map_err(failed(directory))?;
        let path = directory.join(GRANTS_FILE);
        let keys = key_source.keys(&path)?;
        read(&path, &keys)?;
        Ok(Self {
            directory: directory.to_owned(),
            keys,
            key_source,
            seen: Mutex::default(),
        })
    }

    /// The vault in this directory, with its key where it can be kept best.
    pub(crate) fn at(directory: &Path) -> Result<Self, VaultError> {
        let key = directory.join(KEY_FILE);
        Self::open(
            directory,
            KeySource::best(&directory.join(GRANTS_FILE), &key),
        )
    }

    fn path(&self) -> PathBuf {
        self.directory.join(GRANTS_FILE)
    }

    pub(super) async fn load(&self, key: &Key) -> Result<Slot, VaultError> {
        let (path, keys, key) = (self.path(), self.keys.clone(), key.clone());
        blocking(move || Ok(slot::find(&read(&path, &keys)?, &key))).await
    }

    pub(super) async fn write(
        &self,
        key: &Key,
        replaces: Version,
        value: &str,
    ) -> Result<Option<Version>, VaultError> {
        let locking = locked(self.directory.join(LOCK_FILE));
        let lock = tokio::time::timeout(LOCK_WITHIN, locking).await;
        let lock = lock.map_err(|_| VaultError::Taken {
            what: "the grants' file",
            within: LOCK_WITHIN,
        })??;
        let (path, keys) = (self.path(), self.keys.clone());
        let (key, value) = (key.clone(), value.to_owned());
        blocking(move || {
            let mut slots = read(&path, &keys)?;
            let written = slot::replace(&mut slots, &key, replaces, &value);
            if written.is_some() {
                let sealed = keys.seal(PLACE, slot::written(Some(&slots))?.as_bytes())?;
                private::replace(&path, &sealed).map_err(failed(&path))?;
            }
            // Only now, even if whoever asked for the write has left.
            drop(lock);
            Ok(written)
        })
        .await
    }

    /// Waits for a lock of the grant's own: a slow authorization server holds nobody else up. Lock
    /// files stay; to delete one that somebody is about to lock would make two locks of it.
    pub(super) async fn turn(&self, key: &Key) -> Result<fs::File, VaultError> {
        let name = key.as_str().replace('/', "-");
        locked(self.directory.join(format!("{name}.lock"))).await
    }

    /// The slots of one kind.
    pub(super) async fn all(&self, kind: &'static str) -> Result<Vec<Slot>, VaultError> {
        let (path, keys) = (self.path(), self.keys.clone());
        blocking(move || {
            let slots = read(&path, &keys)?.into_iter();
            let is_kind = |key: &str| key.split_once('/').is_some_and(|(name, _)| name == kind);
            Ok(slots
                .filter(|(key, _)| is_kind(key))
                .map(|(_, slot)| slot)
                .collect())
        })
        .await
    }

    /// Whether it was written to since this was asked last, by whomever. The first time it was.
    pub(super) async fn was_written_to(&self) -> bool {
        let path = self.path();
        let stamp = blocking(move || {
            let metadata = fs::metadata(&path).ok();
            Ok(metadata.and_then(|it| Some((it.modified().ok()?, it.len()))))
        });
        let stamp = stamp.await.ok().flatten();
        let mut seen = self.seen.lock();
        let is_other = *seen != stamp;
        *seen = stamp;
        is_other
    }
}

/// Where it is, and where its key is, as the operator is told.
impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, sealed with {}",
            self.path().display(),
            self.key_source
        )
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("directory", &self.directory)
            .field("key_source", &self.key_source)
            .finish_non_exhaustive()
    }
}

/// What is in the file; nothing if it is not there yet.
fn read(path: &Path, keys: &SealKeys) -> Result<Slots, VaultError> {
    let sealed = match fs::read(path) {
        Ok(sealed) => sealed,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Slots::new()),
        Err(error) => return Err(failed(path)(error)),
    };
    let opened = keys.open(PLACE, &sealed);
    let slots = opened.map_err(|reason| VaultError::Damaged {
        path: path.to_owned(),
        reason,
    })?;
    Ok(slot::parse(&slots)?.unwrap_or_default())
}

/// Waits until this process has the lock. It is asked for again and again, because a thread that
/// waits for it could not be told to stop.
async fn locked(path: PathBuf) -> Result<fs::File, VaultError> {
    let opening = path.clone();
    let lock = blocking(move || {
        let mut options = private::options();
        let lock = options.create(true).truncate(false).open(&opening);
        lock.map_err(failed(&opening))
    })
    .await?;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(LOOK_EVERY / 5).await,
            Err(fs::TryLockError::Error(error)) => return Err(failed(&path)(error)),
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, VaultError> + Send + 'static,
) -> Result<T, VaultError> {
    spawn_blocking(work)
        .await
        .map_err(|_| VaultError::GivenUp)?
}

fn failed(path: &Path) -> impl Fn(io::Error) -> VaultError {
    let path = path.to_owned();
    move |source| VaultError::File {
        path: path.clone(),
        source,
    }
}
