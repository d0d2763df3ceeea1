//! Sessions in a file of this machine, so that they outlive the process.
//!
//! The file is redb's: one process at a time, transactions, checksums. Everything that writes goes
//! through one thread ([`writer`]), which commits for all who wait at once: a session that was
//! acknowledged is on the disk, and initialising costs a share of a sync instead of one each.
//! Touches wait for the next commit, at most a second; until then they are known here.
//!
//! Times are those of the wall clock, because they must mean something after a restart.

mod rows;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redb::{Builder, Database, DatabaseError, ReadableDatabase as _};
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::rows::{Rows, Touches};
use self::writer::{Command, Tables};
use super::local::Local;
use super::private;
use super::{Key, Live, Loaded, StoreError, Updated, Version};

/// The file's name in its directory.
pub(crate) const SESSIONS_FILE: &str = "sessions.redb";

/// What redb may keep in memory. Records that are used are kept by the session's near cache.
const CACHE_BYTES: usize = 32 * 1024 * 1024;

/// Sessions in a file.
#[derive(Debug)]
pub(crate) struct File {
    database: Arc<Database>,
    touches: Arc<Touches>,
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    writer: Option<JoinHandle<()>>,
    timeout: Duration,
    pub(super) local: Local,
}

// === impl File ===

impl File {
    /// Opens the file in this directory, or makes both. A file that cannot be used is left alone.
    pub(crate) async fn open(directory: &Path, timeout: Duration) -> Result<Self, StoreError> {
        let path = directory.join(SESSIONS_FILE);
        let opening = path.clone();
        // Mending a file after a crash may take a while, and redb gives up on some damage by a panic.
        let opened = spawn_blocking(move || open(&opening)).await;
        let database = opened.map_err(|_| StoreError::UnusableFile {
            path,
            reason: "it is damaged".to_owned(),
        })??;
        let database = Arc::new(database);
        let touches = Arc::new(Touches::default());
        let (commands, waiting) = mpsc::channel();
        let writing = (Arc::clone(&database), Arc::clone(&touches));
        let writer = thread::Builder::new()
            .name("bowline-store".to_owned())
            .spawn(move || writer::run(&writing.0, &waiting, &writing.1))
            .map_err(StoreError::unreachable)?;
        Ok(Self {
            database,
            touches,
            commands: Some(commands),
            writer: Some(writer),
            timeout,
            local: Local::default(),
        })
    }

    pub(super) async fn create(
        &self,
        key: &Key,
        record: &[u8],
        jar: &[u8],
        ttl: Duration,
    ) -> Result<bool, StoreError> {
        let (key, record, jar) = (key.clone(), record.to_vec(), jar.to_vec());
        self.write(move |tables| tables.create(&key, &record, &jar, ttl))
            .await
    }

    pub(super) async fn load(&self, key: &Key) -> Result<Loaded, StoreError> {
        let (key, touches) = (key.clone(), Arc::clone(&self.touches));
        let database = Arc::clone(&self.database);
        let read = spawn_blocking(move || {
            // Before the transaction begins: a touch that is no longer here is committed.
            let touched = touches.until(key.as_str());
            Rows::read(&database.begin_read()?)?.load(&key, touched)
        });
        let read = timeout(self.timeout, read).await;
        let read = read.map_err(|_| StoreError::Timeout(self.timeout))?;
        read.map_err(StoreError::unreachable)?
            .map_err(|error| match error {
                redb::Error::Corrupted(what) => StoreError::Damaged(what),
                other => StoreError::unreachable(other),
            })
    }

    pub(super) async fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<Updated, StoreError> {
        let (key, record, jar) = (key.clone(), record.to_vec(), jar.map(<[u8]>::to_vec));
        self.write(move |tables| tables.update(&key, version, &record, jar.as_deref()))
            .await
    }

    pub(super) async fn touch(&self, key: &Key, ttl: Duration) -> Result<bool, StoreError> {
        if !matches!(self.load(key).await?, Loaded::Live(_)) {
            return Ok(false);
        }
        if self.touches.add(key, rows::until(ttl)) {
            self.send(Command::Touched)?;
        }
        Ok(true)
    }

    pub(super) async fn end(
        &self,
        key: &Key,
        remember: Duration,
    ) -> Result<Option<Live>, StoreError> {
        let key = key.clone();
        self.write(move |tables| tables.end(&key, remember)).await
    }

    pub(super) async fn put_jar(
        &self,
        key: &Key,
        since: Version,
        jar: &[u8],
    ) -> Result<bool, StoreError> {
        let (key, jar) = (key.clone(), jar.to_vec());
        self.write(move |tables| tables.put_jar(&key, since, &jar))
            .await
    }

    /// Whether the disk takes what is written.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        self.write(|_| Ok(())).await
    }

    /// Has the writer do this, and returns when it is on the disk.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (tell, told) = oneshot::channel();
        self.send(Command::Write(Box::new(move |tables| {
            let outcome = work(tables)?;
            // A caller that left is no failure.
            Ok(Box::new(move || drop(tell.send(outcome))))
        })))?;
        match timeout(self.timeout, told).await {
            Err(_) => Err(StoreError::Timeout(self.timeout)),
            Ok(Err(_)) => Err(not_written()),
            Ok(Ok(outcome)) => Ok(outcome),
        }
    }

    fn send(&self, command: Command) -> Result<(), StoreError> {
        let sent = self.commands.as_ref().map(|writer| writer.send(command));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(not_written()),
        }
    }
}

impl Drop for File {
    /// Waits for what is under way, so that whoever opens the file next finds it free and whole.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // It cannot be reported from here that it panicked, and the panic was.
            writer.join().ok();
        }
    }
}

/// The writer has logged why.
fn not_written() -> StoreError {
    StoreError::unreachable("the sessions' file could not be written")
}

fn open(path: &Path) -> Result<Database, StoreError> {
    let unusable = |reason: String| StoreError::UnusableFile {
        path: path.to_owned(),
        reason,
    };
    let prepared = private::directory(path.parent().unwrap_or(path)).and_then(|()| {
        let mut options = private::options();
        let file = options.read(true).create(true).truncate(false).open(path)?;
        private::sync_directory(path)?;
        Ok(file)
    });
    let file = prepared.map_err(|error| unusable(error.to_string()))?;
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create_file(file).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => StoreError::InUse {
            path: PathBuf::from(path),
        },
        other => unusable(other.to_string()),
    })?;
    match rows::layout(&database).map_err(|error| unusable(error.to_string()))? {
        None => rows::lay_out(&database).map_err(|error| unusable(error.to_string()))?,
        Some(rows::LAYOUT) => {}
        Some(found) => {
            return Err(StoreError::NewerFile {
                path: PathBuf::from(path),
                found,
                known: rows::LAYOUT,
            });
        }
    }
    Ok(database)
}
