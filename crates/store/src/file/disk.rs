//! The open file, and what is wrong with it.
//!
//! After one I/O error redb rejects every operation until the database is closed and opened again. The
//! writer does that as often as necessary. Meanwhile callers get an error that names the cause, and
//! reads still work where possible. Confirmed writes are in the file when it opens again.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use redb::{Builder, Database, DatabaseError, ReadTransaction, ReadableDatabase as _};

use super::clock::Clock;
use super::ended::EndedKeys;
use super::rows::{self, Touches};
use crate::{LARGEST_VALUE, Refusal, StoreError, private};
use bowline_system::clock::unix_millis;

/// The size of redb's cache. Sessions in use are in the near cache anyway.
const CACHE_BYTES: usize = 8 * 1024 * 1024;

/// A file is compacted at the start if it is larger than this, and so many times larger than its content.
const WORTH_COMPACTING: u64 = 8 * 1024 * 1024;
const MOSTLY_EMPTY: u64 = 4;

/// The location of the database. A trait, so that a test can provide a disk that fails.
pub(super) trait Backing: std::fmt::Debug + Send + Sync {
    /// Opens the database, or creates it if `create` is set.
    fn open(&self, create: bool) -> Result<Database, StoreError>;

    /// Fails if there is no room for a large record.
    fn check_room(&self) -> io::Result<()>;

    /// How long the file is.
    fn bytes(&self) -> io::Result<u64>;
}

/// A file of this machine.
#[derive(Debug)]
pub(super) struct InFile {
    path: PathBuf,
}

/// The database and the state that belongs to it.
#[derive(Debug)]
pub(super) struct Disk {
    backing: Box<dyn Backing>,
    /// `None` while it is closed.
    database: RwLock<Option<Database>>,
    /// Why nothing can be written, while it cannot.
    trouble: Mutex<Option<Trouble>>,
    pub(super) clock: Clock,
    pub(super) touches: Touches,
    pub(super) ended: Mutex<EndedKeys>,
    /// How many sessions are in it.
    pub(super) sessions: AtomicUsize,
}

/// What is wrong with a file.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    why: Refusal,
    said: String,
}

// === impl Disk ===

impl Disk {
    /// Opens the database, or makes it.
    pub(super) fn open(backing: Box<dyn Backing>) -> Result<Self, StoreError> {
        let mut database = backing.open(true)?;
        let unusable = |error: redb::Error| StoreError::unreachable(error);
        let bytes = backing.bytes().map_err(StoreError::unreachable)?;
        if bytes > WORTH_COMPACTING && is_mostly_empty(&database, bytes).map_err(unusable)? {
            database.compact().map_err(StoreError::unreachable)?;
        }
        let meta = rows::meta(&database).map_err(unusable)?;
        let sessions = rows::count_sessions(&database).map_err(unusable)?;
        Ok(Self {
            backing,
            database: RwLock::new(Some(database)),
            trouble: Mutex::new(None),
            clock: Clock::from(meta.clock.unwrap_or_else(unix_millis)),
            touches: Touches::default(),
            ended: Mutex::default(),
            sessions: sessions.into(),
        })
    }

    /// Reads, if that is possible within this time: not while the database is closed.
    pub(super) fn read<T>(
        &self,
        within: Duration,
        read: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, StoreError> {
        let open = self.database.try_read_for(within);
        let open = open.ok_or(StoreError::Timeout(within))?;
        let database = open.as_ref().ok_or_else(|| self.unreadable())?;
        let transaction = database.begin_read().map_err(StoreError::unreachable)?;
        read(&transaction).map_err(|error| match error {
            redb::Error::Corrupted(what) => StoreError::Damaged(what),
            other => StoreError::unreachable(other),
        })
    }

    /// Lets the one thread that writes use the database.
    pub(super) fn with<T>(
        &self,
        write: impl FnOnce(&Database) -> Result<T, redb::Error>,
    ) -> Result<T, redb::Error> {
        match &*self.database.read() {
            Some(database) => write(database),
            None => Err(redb::Error::DatabaseClosed),
        }
    }

    /// Why nothing can be written at the moment.
    pub(super) fn refusal(&self) -> Option<StoreError> {
        let trouble = self.trouble.lock();
        trouble.as_ref().map(|trouble| StoreError::Refused {
            why: trouble.why,
            said: trouble.said.clone(),
        })
    }

    /// The current problem of the disk.
    pub(super) fn trouble(&self) -> Trouble {
        let trouble = self.trouble.lock().clone();
        trouble.unwrap_or_else(|| Trouble::fails("the sessions' file is closed".to_owned()))
    }

    fn unreadable(&self) -> StoreError {
        StoreError::unreachable(self.trouble().said)
    }

    /// Makes every write fail with this error from now on.
    pub(super) fn fail(&self, trouble: Trouble) {
        *self.trouble.lock() = Some(trouble);
    }

    /// Records that the disk accepts writes again.
    pub(super) fn recovered(&self) {
        *self.trouble.lock() = None;
    }

    pub(super) fn close(&self) {
        *self.database.write() = None;
    }

    /// Opens the last committed state again. No new file is created: if the file is gone, so are
    /// confirmed writes, and the operator must know that.
    pub(super) fn open_again(&self) -> Result<(), StoreError> {
        let mut open = self.database.write();
        if open.is_none() {
            let database = self.backing.open(false)?;
            // Whether the last commit succeeded is not known.
            let sessions = rows::count_sessions(&database).map_err(StoreError::unreachable)?;
            self.sessions
                .store(sessions, std::sync::atomic::Ordering::Relaxed);
            *open = Some(database);
        }
        Ok(())
    }

    /// Fails if there is no room for a large record.
    pub(super) fn check_room(&self) -> Result<(), Trouble> {
        self.backing
            .check_room()
            .map_err(|error| Trouble::of_io(&error))
    }
}

/// Whether most of a file of this length is empty: redb reuses free space, and returns little of it to
/// the system.
fn is_mostly_empty(database: &Database, bytes: u64) -> Result<bool, redb::Error> {
    let write = database.begin_write()?;
    let stats = write.stats()?;
    write.abort()?;
    let taken = stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
    Ok(bytes / MOSTLY_EMPTY > taken)
}

// === impl Trouble ===

impl Trouble {
    pub(super) fn of(error: &redb::Error) -> Self {
        match error {
            redb::Error::Io(error) => Self::of_io(error),
            other => Self::fails(other.to_string()),
        }
    }

    pub(super) fn of_io(error: &io::Error) -> Self {
        let is_full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
        );
        match is_full {
            true => Self {
                why: Refusal::DiskFull,
                said: error.to_string(),
            },
            false => Self::fails(error.to_string()),
        }
    }

    /// The same trouble, with a newer message.
    pub(super) fn and(self, said: String) -> Self {
        Self { said, ..self }
    }

    pub(super) fn fails(said: String) -> Self {
        Self {
            why: Refusal::DiskFails,
            said,
        }
    }
}

// === impl InFile ===

impl InFile {
    pub(super) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }

    fn unusable(&self, reason: impl std::fmt::Display) -> StoreError {
        StoreError::UnusableFile {
            path: self.path.clone(),
            reason: reason.to_string(),
        }
    }

    fn file(&self, create: bool) -> io::Result<std::fs::File> {
        let path = &self.path;
        let mut options = private::options();
        options.read(true);
        if !create {
            return options.open(path);
        }
        private::directory(path.parent().unwrap_or(path))?;
        let file = options.create(true).truncate(false).open(path)?;
        private::sync_directory(path)?;
        Ok(file)
    }
}

impl Backing for InFile {
    fn open(&self, create: bool) -> Result<Database, StoreError> {
        let file = self.file(create).map_err(|error| self.unusable(error))?;
        let mut builder = Builder::new();
        builder.set_cache_size(CACHE_BYTES);
        let database = builder.create_file(file).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse {
                path: self.path.clone(),
            },
            other => self.unusable(other),
        })?;
        let meta = rows::meta(&database).map_err(|error| self.unusable(error))?;
        match meta.layout {
            None if create => {
                rows::lay_out(&database).map_err(|error| self.unusable(error))?;
            }
            None => return Err(self.unusable("it is empty")),
            Some(rows::LAYOUT) => {}
            Some(found) => {
                return Err(StoreError::NewerFile {
                    path: self.path.clone(),
                    found,
                    known: rows::LAYOUT,
                });
            }
        }
        Ok(database)
    }

    /// Tried with another file: after a failed write the database itself would have to be opened again.
    fn check_room(&self) -> io::Result<()> {
        let beside = self.path.with_extension("room");
        let mut options = private::options();
        let tried = options
            .create(true)
            .truncate(true)
            .open(&beside)
            .and_then(|mut file| {
                file.write_all(&vec![1; LARGEST_VALUE])?;
                file.sync_all()
            });
        // It may not exist.
        std::fs::remove_file(&beside).ok();
        tried
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(std::fs::metadata(&self.path)?.len())
    }
}
