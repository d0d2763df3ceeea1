//! Where sessions are kept: a file or a Redis, which a test may look into and send away.

use std::path::Path;
use std::time::Duration;

use bowline::SealKeys;
use bowline::config::{OnUnreachable, RedisStore, Store, StoreKind};
use bowline_testbed::redis::Redis;

pub(crate) fn in_file(path: &Path) -> Store {
    let kind = StoreKind::File {
        path: path.to_owned(),
    };
    Store {
        kind,
        ..Store::default()
    }
}

pub(crate) fn in_redis(redis: &Redis) -> Store {
    at_redis(&redis.url())
}

pub(crate) fn at_redis(url: &str) -> Store {
    Store {
        kind: StoreKind::Redis(RedisStore {
            url: url.parse().unwrap(),
            user: None,
            password: None,
            ca_file: None,
            prefix: "test".to_owned(),
            on_unreachable_start: OnUnreachable::Wait,
        }),
        timeout: Duration::from_millis(500),
        grace: Duration::from_secs(2),
        seal_keys: Some(SealKeys::parse(&"A".repeat(43)).unwrap()),
        ..Store::default()
    }
}

/// A connection of the test's own.
pub(crate) async fn raw(redis: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    // It waits for as long as a Redis that a test makes slow takes.
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// Makes Redis refuse everything, without losing anything.
pub(crate) async fn send_away(redis: &Redis) {
    let mut connection = raw(redis).await;
    for words in [
        &["CONFIG", "SET", "replica-serve-stale-data", "no"][..],
        &["REPLICAOF", "127.0.0.1", "1"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
}

pub(crate) async fn call_back(redis: &Redis) {
    let mut connection = raw(redis).await;
    let back = command(&["REPLICAOF", "NO", "ONE"]);
    back.exec_async(&mut connection).await.unwrap();
}

pub(crate) fn command(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    command
}

/// The keys of sessions.
pub(crate) async fn keys(connection: &mut redis::aio::MultiplexedConnection) -> Vec<String> {
    let mut keys: Vec<String> = command(&["KEYS", "test:{*"])
        .query_async(connection)
        .await
        .unwrap();
    keys.sort();
    keys
}
