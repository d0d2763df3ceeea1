//! What only a file can break: restarts, damage, and a second gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use redb::{Builder, ReadableDatabase as _, ReadableTableMetadata as _, TableDefinition};

use super::*;
use crate::store::{SESSIONS_FILE, StoreError, Version};

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
    for (key, loaded) in before.iter().zip(&loaded) {
        assert_eq!(store.load(key).await.unwrap(), *loaded);
    }
    assert_eq!(loaded[2], Loaded::Ended);
}

/// The file as it is on the disk at the moment of the acknowledgement is all that a killed gateway
/// leaves behind.
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
        matches!(states, (Ok(Loaded::Absent), Ok(Loaded::Absent)))
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
    let records = TableDefinition::<&str, (u64, u64, &[u8])>::new("records");
    let jars = TableDefinition::<&str, &[u8]>::new("jars");
    let until = TableDefinition::<&str, u64>::new("until");
    assert_eq!(read.open_table(records).unwrap().len().unwrap(), 1);
    assert_eq!(read.open_table(jars).unwrap().len().unwrap(), 1);
    assert_eq!(read.open_table(until).unwrap().len().unwrap(), 1);
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
