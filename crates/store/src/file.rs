//! Sessions in a file of this machine, so that they outlive the process.
//!
//! The file is redb's: one process at a time, transactions, checksums. One thread ([`writer`]) does all
//! writes and commits those that wait together: a session that was acknowledged is on the disk, and
//! initialising costs a share of a sync instead of one each. Touches wait for the next commit, at most a
//! second; until then they are in memory.
//!
//! After an error of the disk, or when it is full, the file is opened again ([`disk`]); times are the file's
//! own ([`clock`]); the ends of sessions are remembered in memory ([`ended`]).

mod clock;
mod disk;
mod ended;
mod rows;
mod tables;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use self::disk::{Backing, Disk, InFile};
use self::rows::Rows;
use self::tables::Tables;
use self::writer::{Command, PendingWrite};
use super::local::Local;
use super::{Key, KeyState, Live, StoreError, UpdateOutcome, Version};

/// The file's name in its directory.
pub const SESSIONS_FILE: &str = "sessions.redb";

/// Sessions in a file.
#[derive(Debug)]
pub struct File {
    disk: Arc<Disk>,
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    writer: Option<JoinHandle<()>>,
    timeout: Duration,
    pub(super) local: Local,
}

// === impl File ===

impl File {
    /// Opens the file in this directory, or creates both. A file that cannot be used is not changed.
    pub async fn open(directory: &Path, timeout: Duration) -> Result<Self, StoreError> {
        let path = directory.join(SESSIONS_FILE);
        let backing = Box::new(InFile::at(&path));
        Self::open_at(backing, timeout)
            .await
            .unwrap_or_else(|_panic| {
                Err(StoreError::UnusableFile {
                    path,
                    reason: "it is damaged".to_owned(),
                })
            })
    }

    /// The outer error is a panic: redb panics on some kinds of damage.
    async fn open_at(
        backing: Box<dyn Backing>,
        timeout: Duration,
    ) -> Result<Result<Self, StoreError>, tokio::task::JoinError> {
        // Repairing a file after a crash may take a while.
        let opened = spawn_blocking(move || Disk::open(backing)).await?;
        Ok(opened.and_then(|disk| Self::over(Arc::new(disk), timeout)))
    }

    fn over(disk: Arc<Disk>, timeout: Duration) -> Result<Self, StoreError> {
        let (commands, waiting) = mpsc::channel();
        let writing = Arc::clone(&disk);
        let writer = thread::Builder::new()
            .name("bowline-store".to_owned())
            .spawn(move || writer::run(&writing, &waiting))
            .map_err(StoreError::unreachable)?;
        Ok(Self {
            disk,
            commands: Some(commands),
            writer: Some(writer),
            timeout,
            local: Local::default(),
        })
    }

    /// How many sessions are in the file.
    pub(super) fn count(&self) -> usize {
        self.disk.sessions.load(Ordering::Relaxed)
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

    pub(super) async fn load(&self, key: &Key) -> Result<KeyState, StoreError> {
        let (key, disk, within) = (key.clone(), Arc::clone(&self.disk), self.timeout);
        let loaded = self.read(move || {
            // Before the transaction begins: a touch that is no longer here is committed.
            let (touched, now) = (disk.touches.until(key.as_str()), disk.clock.now());
            let found = disk.read(within, |transaction| {
                Rows::read(transaction)?.load(&key, touched, now)
            })?;
            // After it: an end that was reported is known here.
            match found {
                KeyState::Absent if disk.ended.lock().contains(&key, now) => Ok(KeyState::Ended),
                found => Ok(found),
            }
        });
        loaded.await
    }

    pub(super) async fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<UpdateOutcome, StoreError> {
        let (key, record, jar) = (key.clone(), record.to_vec(), jar.map(<[u8]>::to_vec));
        self.write(move |tables| tables.update(&key, version, &record, jar.as_deref()))
            .await
    }

    pub(super) async fn touch(&self, key: &Key, ttl: Duration) -> Result<bool, StoreError> {
        if !matches!(self.load(key).await?, KeyState::Live(_)) {
            return Ok(false);
        }
        let until = self.disk.clock.after(ttl);
        if self.disk.touches.add(key, until) {
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

    pub(super) async fn expire(
        &self,
        key: &Key,
        left: Duration,
    ) -> Result<Option<Live>, StoreError> {
        let key = key.clone();
        self.write(move |tables| tables.expire(&key, left)).await
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

    /// An error if the disk is known to accept no writes.
    pub(super) fn check_writable(&self) -> Result<(), StoreError> {
        self.disk.refusal().map_or(Ok(()), Err)
    }

    /// Whether it can be read.
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let (disk, within) = (Arc::clone(&self.disk), self.timeout);
        self.read(move || disk.read(within, |transaction| Rows::read(transaction).map(drop)))
            .await
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let read = timeout(self.timeout, spawn_blocking(read)).await;
        let read = read.map_err(|_| StoreError::Timeout(self.timeout))?;
        let read = read.map_err(StoreError::unreachable).flatten();
        if matches!(read, Err(StoreError::Unreachable(_))) {
            self.send(Command::CannotRead)?;
        }
        read
    }

    /// Sends work to the writer, and returns when it is on the disk.
    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tables<'_>) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, outcome) = oneshot::channel();
        self.send(Command::Write(PendingWrite::boxed(work, sender)))?;
        match timeout(self.timeout, outcome).await {
            Err(_) => Err(StoreError::Timeout(self.timeout)),
            Ok(Err(_)) => Err(self.not_written()),
            Ok(Ok(outcome)) => Ok(outcome),
        }
    }

    fn send(&self, command: Command) -> Result<(), StoreError> {
        let sent = self.commands.as_ref().map(|writer| writer.send(command));
        match sent {
            Some(Ok(())) => Ok(()),
            _ => Err(self.not_written()),
        }
    }

    fn not_written(&self) -> StoreError {
        let refusal = self.disk.refusal();
        refusal.unwrap_or_else(|| StoreError::unreachable("the sessions file could not be written"))
    }
}

impl Drop for File {
    /// Waits for pending writes, so that the next process that opens the file finds it free and complete.
    fn drop(&mut self) {
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // A panic of the thread was already reported when it happened.
            writer.join().ok();
        }
    }
}
