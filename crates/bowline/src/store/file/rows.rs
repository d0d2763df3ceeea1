//! What is in the file, and how it is read.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase as _, ReadableTable,
    TableDefinition, TableError,
};

use crate::clock;
use crate::store::{Key, Live, Loaded, Version};

/// How the tables are laid out; more than this was written by a newer Bowline.
pub(super) const LAYOUT: u64 = 1;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LAYOUT_KEY: &str = "layout";

/// The version of the record, that of its jar, and the record. Version 0: it has ended.
pub(super) type Record = (u64, u64, &'static [u8]);
pub(super) type Jar = &'static [u8];

pub(super) const RECORDS: TableDefinition<'_, &str, Record> = TableDefinition::new("records");
pub(super) const JARS: TableDefinition<'_, &str, Jar> = TableDefinition::new("jars");
/// Until when a record, or the memory of one, is kept: milliseconds since 1970.
pub(super) const UNTIL: TableDefinition<'_, &str, u64> = TableDefinition::new("until");

/// The tables of one transaction, for reading.
pub(super) struct Rows<R, J, U> {
    pub(super) records: R,
    pub(super) jars: J,
    pub(super) until: U,
}

/// Touches that are not committed yet.
#[derive(Debug, Default)]
pub(super) struct Touches(Mutex<HashMap<Key, u64>>);

/// How the file is laid out; `None` when it is new.
pub(super) fn layout(database: &Database) -> Result<Option<u64>, redb::Error> {
    let read = database.begin_read()?;
    match read.open_table(META) {
        Ok(meta) => Ok(meta.get(LAYOUT_KEY)?.map(|layout| layout.value())),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Makes the tables of a new file.
pub(super) fn lay_out(database: &Database) -> Result<(), redb::Error> {
    let write = database.begin_write()?;
    write.open_table(META)?.insert(LAYOUT_KEY, LAYOUT)?;
    write.open_table(RECORDS)?;
    write.open_table(JARS)?;
    write.open_table(UNTIL)?;
    Ok(write.commit()?)
}

/// This much later than now.
pub(super) fn until(ttl: Duration) -> u64 {
    later(clock::unix_millis(), ttl)
}

/// This much later than then.
pub(super) fn later(then: u64, by: Duration) -> u64 {
    then.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
}

// === impl Rows ===

type Read<V> = ReadOnlyTable<&'static str, V>;

impl Rows<Read<Record>, Read<Jar>, Read<u64>> {
    pub(super) fn read(transaction: &ReadTransaction) -> Result<Self, redb::Error> {
        Ok(Self {
            records: transaction.open_table(RECORDS)?,
            jars: transaction.open_table(JARS)?,
            until: transaction.open_table(UNTIL)?,
        })
    }
}

impl<R, J, U> Rows<R, J, U>
where
    R: ReadableTable<&'static str, Record>,
    J: ReadableTable<&'static str, Jar>,
    U: ReadableTable<&'static str, u64>,
{
    /// What is under a key, if its last touch was to keep it until `touched`.
    pub(super) fn load(&self, key: &Key, touched: Option<u64>) -> Result<Loaded, redb::Error> {
        let key = key.as_str();
        let Some(row) = self.records.get(key)? else {
            return Ok(Loaded::Absent);
        };
        let (version, jar_since, record) = row.value();
        let ended = version == 0;
        let stored = self.until.get(key)?.map_or(0, |until| until.value());
        // What has ended cannot be touched.
        let until = touched.filter(|_| !ended).unwrap_or(stored);
        if until <= clock::unix_millis() {
            return Ok(Loaded::Absent);
        }
        if ended {
            return Ok(Loaded::Ended);
        }
        let jar = self.jars.get(key)?;
        Ok(Loaded::Live(Live {
            version: Version(version),
            record: record.to_vec(),
            jar: jar.map_or_else(Vec::new, |jar| jar.value().to_vec()),
            jar_since: Version(jar_since),
        }))
    }
}

// === impl Touches ===

impl Touches {
    /// Until when a key was last to be kept.
    pub(super) fn until(&self, key: &str) -> Option<u64> {
        self.0.lock().get(key).copied()
    }

    /// Whether this is the first that waits.
    pub(super) fn add(&self, key: &Key, until: u64) -> bool {
        let mut touches = self.0.lock();
        touches.insert(key.clone(), until);
        touches.len() == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// What waits to be committed.
    pub(super) fn waiting(&self) -> Vec<(Key, u64)> {
        let touches = self.0.lock();
        touches
            .iter()
            .map(|(key, until)| (key.clone(), *until))
            .collect()
    }

    /// Forgets what was committed, unless it was touched again meanwhile.
    pub(super) fn committed(&self, these: &[(Key, u64)]) {
        let mut touches = self.0.lock();
        for (key, until) in these {
            if touches.get(key) == Some(until) {
                touches.remove(key);
            }
        }
    }
}
