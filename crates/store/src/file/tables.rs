//! The tables of a transaction, for writing.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redb::{ReadableTable as _, Table, WriteTransaction};

use super::disk::Disk;
use super::rows::{JARS, Jar, RECORDS, Record, Rows, UNTIL};
use crate::{Key, KeyState, Live, UpdateOutcome, Version};

type Written<'a, V> = Table<'a, &'static str, V>;

/// What a transaction writes to.
pub(super) struct Tables<'a> {
    rows: Rows<Written<'a, Record>, Written<'a, Jar>, Written<'a, u64>>,
    disk: &'a Disk,
    changes: Changes,
}

/// What changes in memory once the transaction is committed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Keys that ended, and until when that is remembered.
    ended: HashMap<Key, u64>,
    opened: usize,
    gone: usize,
}

// === impl Tables ===

impl<'a> Tables<'a> {
    pub(super) fn open(
        transaction: &'a WriteTransaction,
        disk: &'a Disk,
    ) -> Result<Self, redb::Error> {
        let rows = Rows {
            records: transaction.open_table(RECORDS)?,
            jars: transaction.open_table(JARS)?,
            until: transaction.open_table(UNTIL)?,
        };
        Ok(Self {
            rows,
            disk,
            changes: Changes::default(),
        })
    }

    /// What changes in memory once the transaction is committed.
    pub(super) fn changes(self) -> Changes {
        self.changes
    }

    pub(super) fn create(
        &mut self,
        key: &Key,
        record: &[u8],
        jar: &[u8],
        ttl: Duration,
    ) -> Result<bool, redb::Error> {
        if self.load(key)? != KeyState::Absent {
            return Ok(false);
        }
        // An expired record may not have been removed yet.
        self.remove(key.as_str())?;
        let version = Version::FIRST;
        self.put(key, version, version, record)?;
        self.rows.jars.insert(key.as_str(), jar)?;
        let until = self.disk.clock.after(ttl);
        self.rows.until.insert(key.as_str(), until)?;
        self.changes.opened += usize::from(Key::is_sessions(key.as_str()));
        Ok(true)
    }

    pub(super) fn update(
        &mut self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<UpdateOutcome, redb::Error> {
        let KeyState::Live(live) = self.load(key)? else {
            return Ok(UpdateOutcome::Gone);
        };
        if live.version != version {
            return Ok(UpdateOutcome::Conflict(live));
        }
        let next = version.next();
        let jar_since = match jar {
            Some(jar) => {
                self.rows.jars.insert(key.as_str(), jar)?;
                next
            }
            None => live.jar_since,
        };
        self.put(key, next, jar_since, record)?;
        Ok(UpdateOutcome::Done(next))
    }

    pub(super) fn end(
        &mut self,
        key: &Key,
        remember: Duration,
    ) -> Result<Option<Live>, redb::Error> {
        let KeyState::Live(live) = self.load(key)? else {
            return Ok(None);
        };
        self.remove(key.as_str())?;
        let until = self.disk.clock.after(remember);
        self.changes.ended.insert(key.clone(), until);
        Ok(Some(live))
    }

    pub(super) fn expire(
        &mut self,
        key: &Key,
        left: Duration,
    ) -> Result<Option<Live>, redb::Error> {
        let KeyState::Live(live) = self.load(key)? else {
            return Ok(None);
        };
        let touched = self.disk.touches.until(key.as_str());
        if self.rows.until(key, touched)? > self.disk.clock.after(left) {
            return Ok(None);
        }
        self.remove(key.as_str())?;
        Ok(Some(live))
    }

    pub(super) fn put_jar(
        &mut self,
        key: &Key,
        since: Version,
        jar: &[u8],
    ) -> Result<bool, redb::Error> {
        match self.load(key)? {
            KeyState::Live(live) if live.jar_since == since => {
                self.rows.jars.insert(key.as_str(), jar)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn load(&self, key: &Key) -> Result<KeyState, redb::Error> {
        let now = self.disk.clock.now();
        let touched = self.disk.touches.until(key.as_str());
        match self.rows.load(key, touched, now)? {
            KeyState::Absent if self.has_ended(key, now) => Ok(KeyState::Ended),
            found => Ok(found),
        }
    }

    fn has_ended(&self, key: &Key, now: u64) -> bool {
        let just_now = self.changes.ended.get(key);
        just_now.is_some_and(|until| now < *until) || self.disk.ended.lock().contains(key, now)
    }

    fn put(
        &mut self,
        key: &Key,
        version: Version,
        jar_since: Version,
        record: &[u8],
    ) -> Result<(), redb::Error> {
        let row = (version.0, jar_since.0, record);
        self.rows.records.insert(key.as_str(), row)?;
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), redb::Error> {
        let was = self.rows.records.remove(key)?;
        let was_live = was.is_some_and(|row| row.value().0 != 0);
        self.rows.jars.remove(key)?;
        self.rows.until.remove(key)?;
        self.changes.gone += usize::from(was_live && Key::is_sessions(key));
        Ok(())
    }

    /// Writes the touches of keys that are still live.
    pub(super) fn keep(&mut self, touched: &[(Key, u64)]) -> Result<(), redb::Error> {
        for (key, until) in touched {
            let now = self.disk.clock.now();
            if matches!(self.rows.load(key, Some(*until), now)?, KeyState::Live(_)) {
                self.rows.until.insert(key.as_str(), until)?;
            }
        }
        Ok(())
    }

    /// Removes what has expired.
    pub(super) fn sweep(&mut self) -> Result<(), redb::Error> {
        let now = self.disk.clock.now();
        let mut expired = Vec::new();
        for row in self.rows.until.iter()? {
            let (key, until) = row?;
            // A key with a pending touch is written with the next commit.
            let is_touched = || self.disk.touches.until(key.value()).is_some();
            if until.value() <= now && !is_touched() {
                expired.push(key.value().to_owned());
            }
        }
        for key in expired {
            self.remove(&key)?;
        }
        Ok(())
    }
}

// === impl Changes ===

impl Changes {
    pub(super) fn apply(self, disk: &Disk) {
        let now = disk.clock.now();
        let mut ended = disk.ended.lock();
        for (key, until) in self.ended {
            ended.remember(key, until, now);
        }
        drop(ended);
        // Only one thread changes it.
        let sessions = disk.sessions.load(Ordering::Relaxed) + self.opened;
        disk.sessions
            .store(sessions.saturating_sub(self.gone), Ordering::Relaxed);
    }
}
