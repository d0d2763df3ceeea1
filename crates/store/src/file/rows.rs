//! What is in the file, and how it is read.

use std::collections::HashMap;

use parking_lot::Mutex;
use redb::{
    Database, ReadOnlyTable, ReadTransaction, ReadableDatabase as _, ReadableTable,
    TableDefinition, TableError,
};

use crate::{Key, KeyState, Live, Version};

/// The version of the table layout. A higher one was written by a newer Bowline.
pub(super) const LAYOUT: u64 = 1;

pub(super) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const LAYOUT_KEY: &str = "layout";
/// What the file's clock last showed.
pub(super) const CLOCK_KEY: &str = "clock";

/// The version of the record, that of its jar, and the record. Version 0 marks an ended key, which older
/// releases stored.
pub(super) type Record = (u64, u64, &'static [u8]);
pub(super) type Jar = &'static [u8];

pub(super) const RECORDS: TableDefinition<'_, &str, Record> = TableDefinition::new("records");
pub(super) const JARS: TableDefinition<'_, &str, Jar> = TableDefinition::new("jars");
/// Until when a record is kept, by the file's clock.
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

/// The file's metadata.
#[derive(Debug, Default)]
pub(super) struct Meta {
    /// The version of the layout; `None` in a new file.
    pub(super) layout: Option<u64>,
    /// What its clock last showed.
    pub(super) clock: Option<u64>,
}

/// Reads the file's metadata.
pub(super) fn meta(database: &Database) -> Result<Meta, redb::Error> {
    let read = database.begin_read()?;
    match read.open_table(META) {
        Ok(meta) => Ok(Meta {
            layout: meta.get(LAYOUT_KEY)?.map(|layout| layout.value()),
            clock: meta.get(CLOCK_KEY)?.map(|clock| clock.value()),
        }),
        Err(TableError::TableDoesNotExist(_)) => Ok(Meta::default()),
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

/// How many sessions are in the file.
pub(super) fn count_sessions(database: &Database) -> Result<usize, redb::Error> {
    let mut count = 0;
    for row in Rows::read(&database.begin_read()?)?.records.iter()? {
        let (key, row) = row?;
        count += usize::from(row.value().0 != 0 && Key::is_sessions(key.value()));
    }
    Ok(count)
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
    /// The state of a key, given that its last touch extends it until `touched`.
    pub(super) fn load(
        &self,
        key: &Key,
        touched: Option<u64>,
        now: u64,
    ) -> Result<KeyState, redb::Error> {
        let Some(row) = self.records.get(key.as_str())? else {
            return Ok(KeyState::Absent);
        };
        let (version, jar_since, record) = row.value();
        let ended = version == 0;
        // An ended key cannot be touched.
        let touched = touched.filter(|_| !ended);
        if self.until(key, touched)? <= now {
            return Ok(KeyState::Absent);
        }
        if ended {
            return Ok(KeyState::Ended);
        }
        let jar = self.jars.get(key.as_str())?;
        Ok(KeyState::Live(Live {
            version: Version(version),
            record: record.to_vec(),
            jar: jar.map_or_else(Vec::new, |jar| jar.value().to_vec()),
            jar_since: Version(jar_since),
        }))
    }

    /// When a key expires, given that its last touch extends it until `touched`.
    pub(super) fn until(&self, key: &Key, touched: Option<u64>) -> Result<u64, redb::Error> {
        let stored = self.until.get(key.as_str())?;
        Ok(touched.unwrap_or_else(|| stored.map_or(0, |until| until.value())))
    }
}

// === impl Touches ===

impl Touches {
    /// The expiry that the last pending touch of this key set.
    pub(super) fn until(&self, key: &str) -> Option<u64> {
        self.0.lock().get(key).copied()
    }

    /// Adds a touch. Returns whether it is the first pending one.
    pub(super) fn add(&self, key: &Key, until: u64) -> bool {
        let mut touches = self.0.lock();
        touches.insert(key.clone(), until);
        touches.len() == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The pending touches.
    pub(super) fn waiting(&self) -> Vec<(Key, u64)> {
        let touches = self.0.lock();
        touches
            .iter()
            .map(|(key, until)| (key.clone(), *until))
            .collect()
    }

    /// Removes committed touches, unless the key was touched again.
    pub(super) fn committed(&self, these: &[(Key, u64)]) {
        let mut touches = self.0.lock();
        for (key, until) in these {
            if touches.get(key) == Some(until) {
                touches.remove(key);
            }
        }
        if touches.is_empty() {
            touches.shrink_to_fit();
        }
    }
}
