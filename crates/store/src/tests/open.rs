//! From settings to a store that works.

use super::*;
use crate::sealed::SealKeys;
use crate::{OpenStoreError, Password, RedisSettings, StoreAddress, StoreSettings, open};

fn settings(place: StoreAddress) -> StoreSettings {
    StoreSettings {
        place,
        timeout: TIMEOUT,
        seal_keys: None,
        seal_keys_file: None,
    }
}

fn redis(url: String) -> RedisSettings {
    RedisSettings {
        url,
        user: None,
        password: None,
        ca_file: None,
        prefix: "x".to_owned(),
    }
}

#[tokio::test]
async fn memory_needs_nothing() {
    let (store, keys) = open(&settings(StoreAddress::Memory)).await.unwrap();
    assert!(matches!(store, Store::Memory(_)));
    assert_eq!(keys, None);
}

#[tokio::test]
async fn a_file_has_a_key_of_its_own_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let mut settings = settings(StoreAddress::File {
        directory: directory.path().join("state"),
    });
    let (store, first) = open(&settings).await.unwrap();
    store.ping().await.unwrap();
    drop(store);
    let (store, second) = open(&settings).await.unwrap();
    assert!(first.is_some() && first == second);
    drop(store);
    // The operator's key takes precedence.
    let given = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
    settings.seal_keys = Some(given.clone());
    let (_store, third) = open(&settings).await.unwrap();
    assert_eq!(third, Some(given));
}

#[tokio::test]
async fn redis_by_its_settings() {
    let server = Server::start_tls().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let keys_file = directory.path().join("keys");
    let mut settings = settings(StoreAddress::Redis(RedisSettings {
        ca_file: Some(server.authority()),
        ..redis(server.url())
    }));
    let refused = open(&settings).await.unwrap_err();
    assert!(matches!(refused, OpenStoreError::NoSealKeys), "{refused}");
    settings.seal_keys_file = Some(keys_file.clone());
    let refused = open(&settings).await.unwrap_err();
    assert!(matches!(refused, OpenStoreError::SealKeys(_)), "{refused}");
    std::fs::write(&keys_file, SealKeys::generate().unwrap()).unwrap();
    let (store, keys) = open(&settings).await.unwrap();
    store.ping().await.unwrap();
    assert!(keys.is_some());
}

#[tokio::test]
async fn a_password_from_a_file() {
    let server = Server::start_with(&["--requirepass", "s3cret"])
        .await
        .unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("password");
    let mut settings = settings(StoreAddress::Redis(RedisSettings {
        password: Some(Password::File(path.clone())),
        ..redis(format!("{}/0", server.url()))
    }));
    settings.seal_keys = SealKeys::parse(&SealKeys::generate().unwrap()).ok();
    let refused = open(&settings).await.unwrap_err();
    assert!(
        matches!(
            refused,
            OpenStoreError::Read {
                key: "password_file",
                ..
            }
        ),
        "{refused}"
    );
    std::fs::write(&path, "s3cret\n").unwrap();
    let (store, _) = open(&settings).await.unwrap();
    store.ping().await.unwrap();
}
