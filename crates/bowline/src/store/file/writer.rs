//! The one thread that writes the file. Whoever waits while it syncs shares the next sync.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use redb::{Database, ReadableTable as _, Table, WriteTransaction};

use super::rows::{self, JARS, Jar, RECORDS, Record, Rows, Touches, UNTIL};
use crate::clock;
use crate::store::{Key, Live, Loaded, Updated, Version};

/// How long touches wait for a commit to go with.
const TOUCHES_WAIT: Duration = Duration::from_secs(1);
/// How often what has expired is thrown away.
const SWEEP: Duration = Duration::from_secs(60);
/// How many writes share a commit at most, so that a failure does not meet everybody.
const GROUP: usize = 1024;

/// What the thread is asked to do.
pub(super) enum Command {
    Write(Work),
    /// There are touches.
    Touched,
}

/// Something to write. What it returns tells the caller, and is called after the commit.
type Work = Box<dyn FnOnce(&mut Tables<'_>) -> Result<Tell, redb::Error> + Send>;
type Tell = Box<dyn FnOnce() + Send>;

type Written<'a, V> = Table<'a, &'static str, V>;

/// The tables of a transaction, for writing.
pub(super) struct Tables<'a> {
    rows: Rows<Written<'a, Record>, Written<'a, Jar>, Written<'a, u64>>,
    touches: &'a Touches,
}

/// Writes until nobody can ask any more.
pub(super) fn run(database: &Database, commands: &Receiver<Command>, touches: &Touches) {
    let mut swept = 0;
    loop {
        let wait = if touches.is_empty() {
            SWEEP
        } else {
            TOUCHES_WAIT
        };
        let (first, over) = match commands.recv_timeout(wait) {
            Ok(Command::Touched) => continue,
            Ok(Command::Write(work)) => (Some(work), false),
            Err(RecvTimeoutError::Timeout) => (None, false),
            Err(RecvTimeoutError::Disconnected) => (None, true),
        };
        let more = commands.try_iter().filter_map(|command| match command {
            Command::Write(work) => Some(work),
            Command::Touched => None,
        });
        let group = first.into_iter().chain(more).take(GROUP).collect();
        let now = clock::unix_millis();
        let sweep = rows::later(swept, SWEEP) <= now;
        if sweep {
            swept = now;
        }
        // Those who wait are told by the loss of their channel; the reason is the operator's.
        if let Err(error) = commit(database, group, touches, sweep) {
            tracing::error!(%error, "the sessions' file cannot be written");
        }
        if over {
            return;
        }
    }
}

fn commit(
    database: &Database,
    group: Vec<Work>,
    touches: &Touches,
    sweep: bool,
) -> Result<(), redb::Error> {
    let touched = touches.waiting();
    if group.is_empty() && touched.is_empty() && !sweep {
        return Ok(());
    }
    let transaction = database.begin_write()?;
    let mut tables = Tables::open(&transaction, touches)?;
    let mut tell = Vec::with_capacity(group.len());
    for work in group {
        tell.push(work(&mut tables)?);
    }
    tables.keep(&touched)?;
    if sweep {
        tables.sweep()?;
    }
    drop(tables);
    transaction.commit()?;
    touches.committed(&touched);
    tell.into_iter().for_each(|tell| tell());
    Ok(())
}

// === impl Tables ===

impl<'a> Tables<'a> {
    fn open(transaction: &'a WriteTransaction, touches: &'a Touches) -> Result<Self, redb::Error> {
        let rows = Rows {
            records: transaction.open_table(RECORDS)?,
            jars: transaction.open_table(JARS)?,
            until: transaction.open_table(UNTIL)?,
        };
        Ok(Self { rows, touches })
    }

    pub(super) fn create(
        &mut self,
        key: &Key,
        record: &[u8],
        jar: &[u8],
        ttl: Duration,
    ) -> Result<bool, redb::Error> {
        if self.load(key)? != Loaded::Absent {
            return Ok(false);
        }
        let version = Version::FIRST;
        self.put(key, version, version, record)?;
        self.rows.jars.insert(key.as_str(), jar)?;
        self.rows.until.insert(key.as_str(), rows::until(ttl))?;
        Ok(true)
    }

    pub(super) fn update(
        &mut self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> Result<Updated, redb::Error> {
        let Loaded::Live(live) = self.load(key)? else {
            return Ok(Updated::Gone);
        };
        if live.version != version {
            return Ok(Updated::Conflict(live));
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
        Ok(Updated::Done(next))
    }

    pub(super) fn end(
        &mut self,
        key: &Key,
        remember: Duration,
    ) -> Result<Option<Live>, redb::Error> {
        let Loaded::Live(live) = self.load(key)? else {
            return Ok(None);
        };
        self.put(key, Version(0), Version(0), b"")?;
        self.rows.jars.remove(key.as_str())?;
        self.rows
            .until
            .insert(key.as_str(), rows::until(remember))?;
        Ok(Some(live))
    }

    pub(super) fn put_jar(
        &mut self,
        key: &Key,
        since: Version,
        jar: &[u8],
    ) -> Result<bool, redb::Error> {
        match self.load(key)? {
            Loaded::Live(live) if live.jar_since == since => {
                self.rows.jars.insert(key.as_str(), jar)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn load(&self, key: &Key) -> Result<Loaded, redb::Error> {
        self.rows.load(key, self.touches.until(key.as_str()))
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

    /// Writes down touches of what is still live.
    fn keep(&mut self, touched: &[(Key, u64)]) -> Result<(), redb::Error> {
        for (key, until) in touched {
            if matches!(self.rows.load(key, Some(*until))?, Loaded::Live(_)) {
                self.rows.until.insert(key.as_str(), until)?;
            }
        }
        Ok(())
    }

    /// Throws away what has expired.
    fn sweep(&mut self) -> Result<(), redb::Error> {
        let now = clock::unix_millis();
        let mut expired = Vec::new();
        for row in self.rows.until.iter()? {
            let (key, until) = row?;
            // One that was touched meanwhile is written with the next commit.
            if until.value() <= now && self.touches.until(key.value()).is_none() {
                expired.push(key.value().to_owned());
            }
        }
        for key in expired {
            self.rows.records.remove(key.as_str())?;
            self.rows.jars.remove(key.as_str())?;
            self.rows.until.remove(key.as_str())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use parking_lot::Mutex;
    use redb::Builder;
    use redb::backends::InMemoryBackend;

    use super::*;

    /// Runs these, all of which wait already, and returns what happened in which order.
    fn run_all(works: Vec<bool>) -> Vec<&'static str> {
        let backend = InMemoryBackend::new();
        let database = Builder::new().create_with_backend(backend).unwrap();
        rows::lay_out(&database).unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (commands, waiting) = mpsc::channel();
        for succeeds in works {
            let (worked, told) = (Arc::clone(&log), Arc::clone(&log));
            let work: Work = Box::new(move |_| {
                worked.lock().push("work");
                if !succeeds {
                    return Err(redb::Error::DatabaseClosed);
                }
                Ok(Box::new(move || told.lock().push("tell")))
            });
            commands.send(Command::Write(work)).unwrap();
        }
        drop(commands);
        run(&database, &waiting, &Touches::default());
        let log = log.lock();
        log.clone()
    }

    #[test]
    fn those_who_wait_share_a_commit_and_are_told_after_it() {
        let expected = [vec!["work"; 100], vec!["tell"; 100]].concat();
        assert_eq!(run_all(vec![true; 100]), expected);
    }

    #[test]
    fn nobody_is_told_of_a_commit_that_failed() {
        assert_eq!(run_all(vec![true, false, true]), ["work", "work"]);
    }

    #[test]
    fn no_group_is_without_bound() {
        let log = run_all(vec![true; GROUP + 1]);
        assert_eq!(log[..GROUP], vec!["work"; GROUP]);
        assert_eq!(log[GROUP], "tell");
        assert_eq!(log.len(), 2 * (GROUP + 1));
    }
}
