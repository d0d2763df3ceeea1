//! From the configuration to a store that works.

use super::*;
use crate::SealKeys;
use crate::config::{self, Config};
use crate::store::open::{OpenStoreError, open};

fn config(lines: &str) -> config::Store {
    let text = format!("[store]\n{lines}\n");
    let config = Config::parse("bowline.toml", &text, &|_| None);
    config.unwrap_or_else(|errors| panic!("{errors}")).store
}

#[tokio::test]
async fn memory_needs_nothing() {
    let (store, keys) = open(&config("kind = 'memory'")).await.unwrap();
    assert!(matches!(store, Store::Memory(_)));
    assert_eq!(keys, None);
}

#[tokio::test]
async fn a_file_has_a_key_of_its_own_that_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state");
    let mut config = config(&format!("kind = 'file'\npath = '{}'", path.display()));
    let (store, first) = open(&config).await.unwrap();
    store.ping().await.unwrap();
    drop(store);
    let (store, second) = open(&config).await.unwrap();
    assert!(first.is_some() && first == second);
    drop(store);
    // The operator's own wins.
    let given = SealKeys::parse(&SealKeys::generate().unwrap()).unwrap();
    config.seal_keys = Some(given.clone());
    let (_store, third) = open(&config).await.unwrap();
    assert_eq!(third, Some(given));
}

#[tokio::test]
async fn redis_by_its_configuration() {
    let server = Server::start_tls().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let keys_file = directory.path().join("keys");
    let lines = format!(
        "kind = 'redis'\nurl = '{}'\nca_file = '{}'\nprefix = 'x'",
        server.url(),
        server.authority().display()
    );
    let refused = open(&config(&lines)).await.unwrap_err();
    assert!(matches!(refused, OpenStoreError::NoSealKeys), "{refused}");
    let lines = format!("{lines}\nseal_keys_file = '{}'", keys_file.display());
    let refused = open(&config(&lines)).await.unwrap_err();
    assert!(matches!(refused, OpenStoreError::SealKeys(_)), "{refused}");
    std::fs::write(&keys_file, SealKeys::generate().unwrap()).unwrap();
    let (store, keys) = open(&config(&lines)).await.unwrap();
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
    let mut config = config(&format!(
        "kind = 'redis'\nurl = '{}/0'\npassword_file = '{}'",
        server.url(),
        path.display()
    ));
    config.seal_keys = SealKeys::parse(&SealKeys::generate().unwrap()).ok();
    let refused = open(&config).await.unwrap_err();
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
    let (store, _) = open(&config).await.unwrap();
    store.ping().await.unwrap();
}
