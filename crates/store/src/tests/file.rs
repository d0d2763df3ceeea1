//! Failures that only a file has: restarts, damage, and a second gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use redb::{
    Builder, ReadableDatabase as _, ReadableTable as _, ReadableTableMetadata as _, TableDefinition,
};

use super::*;
use crate::{SESSIONS_FILE, StoreError, Version};

async fn open(directory: &TempDir) -> Result<File, StoreError> {
    File::open(directory.path(), TIMEOUT).await
}

#[tokio::test]
async fn sessions_outlive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let (kept, changed, ended) = (fresh_key(), fresh_key(), fresh_key());
    let store = Store::File(open(&directory).await.unwrap());
    for key in [&kept, &changed, &ended] {
        assert!(store.create(key, b"1", b"jar", LONG).await.unwrap());
    }
    store
        .update(&changed, Version(1), b"2", None)
        .await
        .unwrap();
    assert!(store.put_jar(&changed, Version(1), b"new").await.unwrap());
    store.end(&ended, LONG).await.unwrap();
    let before = [&kept, &changed, &ended].map(|key| key.clone());
    let mut loaded = Vec::new();
    for key in &before {
        loaded.push(store.load(key).await.unwrap());
    }
    drop(store);
    let store = Store::File(open(&directory).await.unwrap());
    assert_eq!(loaded[2], KeyState::Ended);
    // After a restart no late writer is left.
    loaded[2] = KeyState::Absent;
    for (key, loaded) in before.iter().zip(&loaded) {
        assert_eq!(store.load(key).await.unwrap(), *loaded);
    }
}

/// The file at the moment of the acknowledgement is all that a killed gateway leaves behind.
#[tokio::test]
async fn what_was_acknowledged_is_on_the_disk() {
    let (directory, crashed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Store::File(open(&directory).await.unwrap());
    let mut keys = Vec::new();
    for round in 0..5 {
        let key = fresh_key();
        assert!(store.create(&key, b"told", b"", LONG).await.unwrap());
        keys.push(key);
        let copy = crashed.path().join(SESSIONS_FILE);
        fs::copy(directory.path().join(SESSIONS_FILE), copy).unwrap();
        let survivor = Store::File(open(&crashed).await.unwrap());
        for key in &keys {
            assert_eq!(
                live(survivor.load(key).await.unwrap()).record,
                b"told",
                "{round}"
            );
        }
    }
}

#[tokio::test]
async fn a_touch_is_on_the_disk_before_long() {
    let directory = tempfile::tempdir().unwrap();
    let key = fresh_key();
    let store = Store::File(open(&directory).await.unwrap());
    assert!(store.create(&key, b"x", b"", SHORT).await.unwrap());
    assert!(store.touch(&key, LONG).await.unwrap());
    drop(store);
    tokio::time::sleep(SHORT).await;
    let store = Store::File(open(&directory).await.unwrap());
    live(store.load(&key).await.unwrap());
}

#[tokio::test]
async fn what_has_expired_is_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    let (expired, ended, kept) = (fresh_key(), fresh_key(), fresh_key());
    let store = Store::File(open(&directory).await.unwrap());
    assert!(store.create(&expired, b"x", b"jar", SHORT).await.unwrap());
    assert!(store.create(&ended, b"x", b"jar", LONG).await.unwrap());
    store.end(&ended, SHORT).await.unwrap();
    until("both have expired", || async {
        let states = (store.load(&expired).await, store.load(&ended).await);
        matches!(states, (Ok(KeyState::Absent), Ok(KeyState::Absent)))
    })
    .await;
    drop(store);
    // The first commit sweeps.
    let store = Store::File(open(&directory).await.unwrap());
    assert!(store.create(&kept, b"x", b"jar", LONG).await.unwrap());
    drop(store);
    let path = directory.path().join(SESSIONS_FILE);
    let database = Builder::new().open(&path).unwrap();
    let read = database.begin_read().unwrap();
    let jars = TableDefinition::<&str, &[u8]>::new("jars");
    assert_eq!(read.open_table(RECORDS).unwrap().len().unwrap(), 1);
    assert_eq!(read.open_table(jars).unwrap().len().unwrap(), 1);
    assert_eq!(read.open_table(UNTIL).unwrap().len().unwrap(), 1);
}

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const RECORDS: TableDefinition<'_, &str, (u64, u64, &[u8])> = TableDefinition::new("records");
const UNTIL: TableDefinition<'_, &str, u64> = TableDefinition::new("until");

/// Shifts every time in the file, as a gateway with a wrong wall clock would leave it.
fn shift(directory: &TempDir, milliseconds: i64) {
    let path = directory.path().join(SESSIONS_FILE);
    let database = Builder::new().open(&path).unwrap();
    let write = database.begin_write().unwrap();
    for table in [META, UNTIL] {
        let mut table = write.open_table(table).unwrap();
        let rows = table.iter().unwrap().map(Result::unwrap);
        let rows: Vec<_> = rows
            .map(|(key, at)| (key.value().to_owned(), at.value()))
            .filter(|(key, _)| key != "layout")
            .collect();
        for (key, at) in rows {
            let at = at.saturating_add_signed(milliseconds);
            table.insert(&*key, at).unwrap();
        }
    }
    write.commit().unwrap();
}

#[tokio::test]
async fn a_clock_that_jumps_costs_no_session_and_keeps_none_for_ever() {
    let year = 365 * 24 * 60 * 60 * 1000;
    let directory = tempfile::tempdir().unwrap();
    let (kept, short) = (fresh_key(), fresh_key());
    let store = Store::File(open(&directory).await.unwrap());
    assert!(store.create(&kept, b"x", b"", LONG).await.unwrap());
    drop(store);
    for by in [-year, 2 * year] {
        shift(&directory, by);
        let store = Store::File(open(&directory).await.unwrap());
        live(store.load(&kept).await.unwrap());
    }
    // A year ahead of the wall clock, time passes as it should.
    let store = Store::File(open(&directory).await.unwrap());
    assert!(store.create(&short, b"x", b"", SHORT).await.unwrap());
    until("it has expired", || async {
        store.load(&short).await.unwrap() == KeyState::Absent
    })
    .await;
    live(store.load(&kept).await.unwrap());
}

#[tokio::test]
async fn ended_sessions_leave_nothing_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(Store::File(open(&directory).await.unwrap()));
    let kept = fresh_key();
    assert!(store.create(&kept, b"x", b"jar", LONG).await.unwrap());
    let path = directory.path().join(SESSIONS_FILE);
    let churn = async |rounds: usize| {
        for _ in 0..rounds {
            at_once(200, |_| {
                let (store, key) = (Arc::clone(&store), fresh_key());
                async move {
                    assert!(store.create(&key, &[7; 700], b"jar", LONG).await.unwrap());
                    assert!(store.end(&key, LONG).await.unwrap().is_some());
                    assert_eq!(store.load(&key).await.unwrap(), KeyState::Ended);
                }
            })
            .await;
        }
        fs::metadata(&path).unwrap().len()
    };
    let (before, after) = (churn(5).await, churn(20).await);
    assert!(
        after <= before.max(4 << 20),
        "it grew from {before} to {after} bytes"
    );
    assert_eq!(store.count().await.unwrap(), 1);
    drop(store);
    let database = Builder::new().open(&path).unwrap();
    let read = database.begin_read().unwrap();
    assert_eq!(read.open_table(RECORDS).unwrap().len().unwrap(), 1);
    assert_eq!(read.open_table(UNTIL).unwrap().len().unwrap(), 1);
}

#[tokio::test]
async fn a_file_that_is_mostly_empty_is_made_smaller_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SESSIONS_FILE);
    let store = Arc::new(Store::File(open(&directory).await.unwrap()));
    let keys: Vec<_> = (0..50).map(|_| fresh_key()).collect();
    for key in &keys {
        let created = store.create(key, &[7; 200_000], b"", LONG).await;
        assert!(created.unwrap());
    }
    let full = fs::metadata(&path).unwrap().len();
    at_once(keys.len(), |number| {
        let (store, key) = (Arc::clone(&store), keys[number].clone());
        async move { store.end(&key, SHORT).await.unwrap() }
    })
    .await;
    let kept = fresh_key();
    assert!(store.create(&kept, b"x", b"", LONG).await.unwrap());
    drop(store);
    let store = Store::File(open(&directory).await.unwrap());
    let empty = fs::metadata(&path).unwrap().len();
    assert!(empty < full / 4, "{full} bytes became {empty}");
    live(store.load(&kept).await.unwrap());
}

#[tokio::test]
async fn sessions_are_counted_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::File(open(&directory).await.unwrap());
    let keys: Vec<_> = (0..5).map(|_| fresh_key()).collect();
    for key in &keys {
        assert!(store.create(key, b"x", b"", LONG).await.unwrap());
    }
    let other = Key::named("tools", &["no session"]);
    assert!(store.create(&other, b"x", b"", LONG).await.unwrap());
    assert_eq!(store.count().await.unwrap(), 5);
    store.end(&keys[0], LONG).await.unwrap();
    assert!(store.expire(&keys[1], LONG).await.unwrap().is_some());
    assert_eq!(store.count().await.unwrap(), 3);
    drop(store);
    let store = Store::File(open(&directory).await.unwrap());
    assert_eq!(store.count().await.unwrap(), 3);
}

#[tokio::test]
async fn a_second_gateway_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(&directory).await.unwrap();
    let refused = open(&directory).await.unwrap_err();
    assert!(matches!(refused, StoreError::InUse { .. }), "{refused}");
    drop(first);
    open(&directory).await.unwrap();
}

#[tokio::test]
async fn only_the_owner_may_read_it() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = temporary.path().join("state").join("bowline");
    let _store = File::open(&directory, TIMEOUT).await.unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(directory.join(SESSIONS_FILE)), 0o600);
    assert_eq!(mode(directory), 0o700);
}

#[tokio::test]
async fn a_file_that_is_something_else_is_left_alone() {
    for contents in [&b"not a database"[..], &[0; 8192], &[255; 100_000]] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(SESSIONS_FILE);
        fs::write(&path, contents).unwrap();
        let refused = open(&directory).await.unwrap_err();
        assert!(
            matches!(refused, StoreError::UnusableFile { .. }),
            "{refused}"
        );
        assert!(fs::read(&path).unwrap() == contents, "it was changed");
    }
}

#[tokio::test]
async fn a_damaged_file_is_not_thrown_away() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SESSIONS_FILE);
    let store = Store::File(open(&directory).await.unwrap());
    for _ in 0..50 {
        store
            .create(&fresh_key(), &[7; 2000], b"", LONG)
            .await
            .unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    // The end is missing, as after a full disk or half a copy.
    let half = &whole[..whole.len() / 2];
    fs::write(&path, half).unwrap();
    let refused = open(&directory).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::UnusableFile { .. }),
        "{refused}"
    );
    assert!(fs::read(&path).unwrap() == half, "it was changed");
}

#[tokio::test]
async fn a_newer_file_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(SESSIONS_FILE);
    drop(open(&directory).await.unwrap());
    let database = Builder::new().open(&path).unwrap();
    let write = database.begin_write().unwrap();
    let meta = TableDefinition::<&str, u64>::new("meta");
    write.open_table(meta).unwrap().insert("layout", 9).unwrap();
    write.commit().unwrap();
    drop(database);
    let refused = open(&directory).await.unwrap_err();
    let newer = matches!(
        refused,
        StoreError::NewerFile {
            found: 9,
            known: 1,
            ..
        }
    );
    assert!(newer, "{refused}");
}
