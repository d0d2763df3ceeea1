//! Failures that only a Redis has: being unavailable, hanging, coming back empty, being shared with
//! other software.

use bytes::Bytes;

use super::*;
use crate::{Refusal, SealedAnnouncement, StoreError, UpdateOutcome, Version};

/// A timeout that tests can wait for.
const BRIEF: Duration = Duration::from_millis(500);

async fn server() -> Server {
    Server::start().await.unwrap()
}

/// Waits until the store is reachable.
async fn reachable(store: &Store) {
    until("the store answers", || async { store.ping().await.is_ok() }).await;
}

pub(super) async fn raw(server: &Server, command: &[&str]) -> ::redis::Value {
    let client = ::redis::Client::open(server.url()).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let mut sent = ::redis::cmd(command[0]);
    sent.arg(&command[1..]);
    sent.query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn a_redis_that_is_away_is_not_an_empty_one() {
    let mut server = server().await;
    let store = connect(&server, None, BRIEF);
    let key = fresh_key();
    assert!(store.create(&key, b"x", b"", LONG).await.unwrap());
    server.kill().await.unwrap();
    for _ in 0..3 {
        let error = store.load(&key).await.unwrap_err();
        assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    }
    let error = store
        .create(&fresh_key(), b"x", b"", LONG)
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
    server.restart_empty().await.unwrap();
    reachable(&store).await;
    // Now the data is really gone, and no late write brings the session back.
    assert_eq!(store.load(&key).await.unwrap(), KeyState::Absent);
    let late = store.update(&key, Version(1), b"late", None).await.unwrap();
    assert_eq!(late, UpdateOutcome::Gone);
    assert!(store.create(&fresh_key(), b"x", b"", LONG).await.unwrap());
}

#[tokio::test]
async fn a_store_can_be_made_before_its_redis_is_there() {
    let mut server = server().await;
    server.kill().await.unwrap();
    let store = connect(&server, None, BRIEF);
    assert!(store.ping().await.is_err());
    server.restart_empty().await.unwrap();
    reachable(&store).await;
    assert!(store.create(&fresh_key(), b"x", b"", LONG).await.unwrap());
}

#[tokio::test]
async fn a_redis_that_hangs_is_not_waited_for() {
    let server = server().await;
    let store = connect(&server, None, BRIEF);
    let key = fresh_key();
    assert!(store.create(&key, b"x", b"", LONG).await.unwrap());
    server.pause().await.unwrap();
    let before = tokio::time::Instant::now();
    let error = store.load(&key).await.unwrap_err();
    assert!(matches!(error, StoreError::Timeout(BRIEF)), "{error:?}");
    assert!(before.elapsed() < 4 * BRIEF);
    server.resume().await.unwrap();
    reachable(&store).await;
    live(store.load(&key).await.unwrap());
}

#[tokio::test]
async fn a_listener_knows_when_it_may_have_missed_something() {
    let mut server = server().await;
    let store = connect(&server, None, BRIEF);
    let said = SealedAnnouncement {
        kind: 3,
        body: Bytes::from_static(b"ended"),
    };
    let mut listener = store.listen();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Whole);
    server.kill().await.unwrap();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Broken);
    server.restart_empty().await.unwrap();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Whole);
    reachable(&store).await;
    store.announce(&said).await.unwrap();
    assert_eq!(
        hear(&mut listener).await,
        ListenerEvent::Announcement(said.clone())
    );
    // A Redis that hangs is noticed as well.
    server.pause().await.unwrap();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Broken);
    server.resume().await.unwrap();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Whole);
    store.announce(&said).await.unwrap();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Announcement(said));
}

#[tokio::test]
async fn a_quiet_channel_is_a_whole_one() {
    let server = server().await;
    let store = connect(&server, None, Duration::from_millis(100));
    let mut listener = store.listen();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Whole);
    assert!(matches!(listener, Listener::Redis(_)));
    let quiet = tokio::time::timeout(Duration::from_secs(1), listener.next()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn a_password_is_needed_and_used() {
    let server = Server::start_with(&["--requirepass", "s3cret"])
        .await
        .unwrap();
    let place = |password: Option<&str>| RedisAddress {
        url: server.url(),
        user: None,
        password: password.map(ToOwned::to_owned),
        trust: None,
        prefix: "bowline".to_owned(),
        timeout: TIMEOUT,
    };
    let store = Store::Redis(Box::new(Redis::new(place(Some("s3cret"))).unwrap()));
    store.ping().await.unwrap();
    let mut listener = store.listen();
    assert_eq!(hear(&mut listener).await, ListenerEvent::Whole);
    assert!(!format!("{store:?}{:?}", place(Some("s3cret"))).contains("s3cret"));
    for wrong in [None, Some("hunter2")] {
        let store = Store::Redis(Box::new(Redis::new(place(wrong)).unwrap()));
        let error = store.ping().await.unwrap_err();
        let why = Refusal::Credentials;
        assert!(
            matches!(error, StoreError::Refused { why: told, .. } if told == why),
            "{error:?}"
        );
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_not_trusted() {
    let server = Server::start_tls().await.unwrap();
    let other = Server::start_tls().await.unwrap();
    let store = connect(&server, Some(other.authority()), Duration::from_secs(10));
    let error = store.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Unreachable(_)), "{error:?}");
}

#[tokio::test]
async fn an_evicting_redis_is_noticed() {
    let server = Server::start_with(&["--maxmemory-policy", "allkeys-lru"])
        .await
        .unwrap();
    let store = connect(&server, None, TIMEOUT);
    assert_eq!(
        store.eviction().await.unwrap().as_deref(),
        Some("allkeys-lru")
    );
}

#[tokio::test]
async fn a_full_redis_refuses_and_keeps() {
    let server = Server::start_with(&["--maxmemory", "3mb"]).await.unwrap();
    let store = connect(&server, None, TIMEOUT);
    let first = fresh_key();
    assert!(store.create(&first, b"x", b"", LONG).await.unwrap());
    let mut refused = None;
    for _ in 0..100 {
        let created = store
            .create(&fresh_key(), &vec![1; 100_000], b"", LONG)
            .await;
        refused = refused.or(created.err());
    }
    assert!(
        matches!(
            refused,
            Some(StoreError::Refused {
                why: Refusal::NoRoom,
                ..
            })
        ),
        "{refused:?}"
    );
    live(store.load(&first).await.unwrap());
}

#[tokio::test]
async fn what_others_wrote_is_damage_and_not_absence() {
    let server = server().await;
    let store = connect(&server, None, TIMEOUT);
    let key = fresh_key();
    let name = format!("bowline:{{{}}}", key.as_str());
    for wrong in [
        &["SET", &name, "x"][..],
        &["HSET", &name, "v", "1"],
        &["HSET", &name, "v", "0", "r", "", "j", "", "s", "1"],
        &["HSET", &name, "v", "x", "r", "", "j", "", "s", "1"],
    ] {
        raw(&server, &["DEL", &name]).await;
        raw(&server, wrong).await;
        let error = store.load(&key).await.unwrap_err();
        assert!(
            matches!(error, StoreError::Damaged(_)),
            "{wrong:?}: {error:?}"
        );
        assert!(!store.create(&key, b"x", b"", LONG).await.unwrap());
    }
}

/// All data of a session is on one node of a cluster, and the keys do not reveal its id.
#[tokio::test]
async fn a_session_is_one_key_with_a_tag() {
    let server = server().await;
    let store = connect(&server, None, TIMEOUT);
    let key = fresh_key();
    assert!(store.create(&key, b"x", b"jar", LONG).await.unwrap());
    // The other key is the index that counts them.
    let ::redis::Value::Array(keys) = raw(&server, &["KEYS", "*{*"]).await else {
        panic!();
    };
    let hash = key.as_str().strip_prefix("files:").unwrap();
    assert_eq!(hash.len(), 64);
    let expected = format!("bowline:{{files:{hash}}}").into_bytes();
    assert_eq!(keys, [::redis::Value::BulkString(expected)]);
}

#[tokio::test]
async fn what_is_nearly_over_is_handed_to_one_caller() {
    let server = server().await;
    let store = Arc::new(connect(&server, None, TIMEOUT));
    let (key, near) = (fresh_key(), Duration::from_secs(30));
    assert_eq!(store.expire(&key, near).await.unwrap(), None);
    assert!(store.create(&key, b"x", b"jar", LONG).await.unwrap());
    assert_eq!(store.expire(&key, near).await.unwrap(), None);
    live(store.load(&key).await.unwrap());
    assert!(store.touch(&key, near).await.unwrap());
    let handed = at_once(20, |_| {
        let (store, key) = (Arc::clone(&store), key.clone());
        async move { store.expire(&key, near).await.unwrap() }
    });
    let handed: Vec<_> = handed.await.into_iter().flatten().collect();
    assert_eq!(handed.len(), 1);
    assert_eq!(handed[0].record, b"x");
    assert_eq!(store.load(&key).await.unwrap(), KeyState::Absent);
    assert!(!store.touch(&key, LONG).await.unwrap());
}
