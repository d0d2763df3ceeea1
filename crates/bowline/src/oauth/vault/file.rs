//! Grants in one sealed file that processes of this machine share: a sign-in on the command line counts for
//! the gateway on the same machine.
//!
//! Every write reads the file first, under a lock, and replaces it as a whole, so that no process overwrites
//! another's write; every load reads the file again. A file that cannot be read is an error, and is left
//! unchanged.

mod key_source;
#[cfg(any(feature = "keychain", target_os = "macos", windows))]
mod keychain;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bowline_store::sealed::SealKeys;
use bowline_store::{Key, Version, private};
use parking_lot::Mutex;
use tokio::task::spawn_blocking;

pub(crate) use self::key_source::KeySource;
use super::slot::{self, Slot, Slots};
use super::{LOOK_EVERY, VaultError};

/// The sealed file's name.
const GRANTS_FILE: &str = "grants.sealed";
/// Where its key is, if it is in a file.
const KEY_FILE: &str = "grants.key";
/// The lock's name. The file itself cannot be locked, because it is replaced.
const LOCK_FILE: &str = "grants.lock";
/// How long a write waits for that of another process, which takes milliseconds.
const LOCK_WITHIN: Duration = Duration::from_secs(10);
/// Bound into the seal, so that no other sealed data is accepted as this file.
const PLACE: &[u8] = b"grants file";

/// Grants in one sealed file.
pub(crate) struct File {
    directory: PathBuf,
    keys: SealKeys,
    key_source: KeySource,
    /// The file's stamp at the last check.
    seen: Mutex<Option<Stamp>>,
}

/// When the file was written, and how long it is. Every write makes another file.
type Stamp = (SystemTime, u64);

// === impl File ===

impl File {
    /// Opens the vault in this directory, which is created if needed. Fails at once if the file cannot be
    /// read.
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

    /// Opens the vault in this directory, with its key in the best place on this machine.
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
        let locking = locked(self.directory.join(LOCK_FILE), LOOK_EVERY / 5);
        let lock = tokio::time::timeout(LOCK_WITHIN, locking).await;
        let lock = lock.map_err(|_| VaultError::Busy {
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
            // Only now, even if the caller of this write was dropped.
            drop(lock);
            Ok(written)
        })
        .await
    }

    /// Waits for the slot's own lock, and tries so often: a slow authorization server blocks no other grant.
    /// Lock files stay: deleting one that another process is about to lock would make two locks of it.
    pub(super) async fn claim(&self, key: &Key, every: Duration) -> Result<fs::File, VaultError> {
        let name = key.as_str().replace('/', "-");
        locked(self.directory.join(format!("{name}.lock")), every).await
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

    /// Whether any process wrote to the file since the last call. The first call says yes.
    pub(super) async fn take_change(&self) -> bool {
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

/// Where the file is, and where its key is, for the operator.
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

/// The slots in the file; none if there is no file yet.
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

/// Waits until this process has the lock. It polls, because a thread that blocks on a lock cannot be
/// cancelled.
async fn locked(path: PathBuf, every: Duration) -> Result<fs::File, VaultError> {
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
            Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(every).await,
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
