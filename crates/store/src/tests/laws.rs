//! Each law, on each kind.

use bytes::Bytes;

use super::*;
use crate::{
    LARGEST_ANNOUNCEMENT, LARGEST_VALUE, Live, Presence, SealedAnnouncement, StoreError,
    UpdateOutcome, Version,
};

/// Creates a module for a law, with a test for each kind.
macro_rules! law {
    ($($law:ident),* $(,)?) => {$(
        mod $law {
            use super::super::Fixture;

            #[tokio::test(flavor = "multi_thread")]
            async fn memory() {
                super::$law(Fixture::memory().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn file() {
                super::$law(Fixture::file().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn redis() {
                super::$law(Fixture::redis().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn redis_tls() {
                super::$law(Fixture::redis_tls().await).await;
            }
        }
    )*};
}

law! {
    what_is_created_is_there,
    one_creator_wins,
    each_version_is_written_once,
    an_update_may_replace_the_jar,
    ending_hands_the_record_to_one_caller,
    an_ended_session_stays_ended,
    what_is_absent_cannot_be_changed,
    a_session_lives_as_long_as_it_is_touched,
    a_tombstone_is_forgotten_in_the_end,
    expiring_hands_what_is_unused_to_one_caller,
    sessions_are_counted,
    a_jar_is_kept_only_for_its_version,
    numbers_grow_for_whoever_asks,
    a_claim_has_one_holder,
    a_claim_ends_by_itself,
    announcements_reach_every_listener,
    gateways_see_each_other,
    too_much_is_refused,
}

async fn what_is_created_is_there(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert_eq!(a.load(&key).await.unwrap(), KeyState::Absent);
    // A store does not interpret any byte.
    let record: Vec<u8> = (0..=255).collect();
    assert!(a.create(&key, &record, b"\0\r\n", LONG).await.unwrap());
    let expected = Live {
        version: Version::FIRST,
        record,
        jar: b"\0\r\n".to_vec(),
        jar_since: Version::FIRST,
    };
    assert_eq!(b.load(&key).await.unwrap(), KeyState::Live(expected));
    assert_eq!(b.load(&fresh_key()).await.unwrap(), KeyState::Absent);
    let empty = fresh_key();
    assert!(a.create(&empty, b"", b"", LONG).await.unwrap());
    assert_eq!(live(b.load(&empty).await.unwrap()).record, b"");
    a.ping().await.unwrap();
    assert_eq!(a.eviction().await.unwrap(), None);
}

async fn one_creator_wins(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    let won = at_once(50, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let key = key.clone();
        async move {
            let record = number.to_string();
            let created = store.create(&key, record.as_bytes(), b"", LONG).await;
            created.unwrap().then_some(record)
        }
    })
    .await;
    let winners: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let kept = live(a.load(&key).await.unwrap());
    assert_eq!(kept.record, winners[0].as_bytes());
}

async fn each_version_is_written_once(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"0", b"", LONG).await.unwrap());
    // Twenty gateways write five times each and retry after conflicts.
    let written = at_once(20, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let key = key.clone();
        async move {
            let mut written = Vec::new();
            let mut known = Version::FIRST;
            while written.len() < 5 {
                let record = format!("{number}.{}", written.len());
                match store.update(&key, known, record.as_bytes(), None).await {
                    Ok(UpdateOutcome::Done(version)) => {
                        assert_eq!(version, known.next());
                        written.push((version, record));
                        known = version;
                    }
                    Ok(UpdateOutcome::Conflict(current)) => {
                        assert!(current.version > known, "{current:?}");
                        known = current.version;
                    }
                    other => panic!("{other:?}"),
                }
            }
            written
        }
    })
    .await;
    let mut written: Vec<_> = written.into_iter().flatten().collect();
    written.sort();
    let versions: Vec<_> = written.iter().map(|(version, _)| version.0).collect();
    assert_eq!(versions, (2..=101).collect::<Vec<_>>());
    let last = live(b.load(&key).await.unwrap());
    assert_eq!(last.version, Version(101));
    assert_eq!(last.record, written[99].1.as_bytes());
    // A version that never was is no match either.
    let ahead = a.update(&key, Version(102), b"x", None).await.unwrap();
    assert_eq!(ahead, UpdateOutcome::Conflict(last));
}

async fn an_update_may_replace_the_jar(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"1", b"first", LONG).await.unwrap());
    let kept = a.update(&key, Version(1), b"2", None).await.unwrap();
    assert_eq!(kept, UpdateOutcome::Done(Version(2)));
    let loaded = live(b.load(&key).await.unwrap());
    assert_eq!(
        (loaded.jar.as_slice(), loaded.jar_since),
        (&b"first"[..], Version(1))
    );
    // An empty jar is a jar.
    a.update(&key, Version(2), b"3", Some(b"")).await.unwrap();
    let loaded = live(b.load(&key).await.unwrap());
    assert_eq!(
        (loaded.jar.as_slice(), loaded.jar_since),
        (&b""[..], Version(3))
    );
}

async fn ending_hands_the_record_to_one_caller(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"record", b"jar", LONG).await.unwrap());
    let ended = at_once(20, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let key = key.clone();
        async move { store.end(&key, LONG).await.unwrap() }
    })
    .await;
    let handed: Vec<_> = ended.into_iter().flatten().collect();
    assert_eq!(handed.len(), 1);
    assert_eq!(
        (handed[0].record.as_slice(), handed[0].jar.as_slice()),
        (&b"record"[..], &b"jar"[..])
    );
    assert_eq!(b.load(&key).await.unwrap(), KeyState::Ended);
}

/// Writers race with the end; afterwards every late write is rejected.
async fn an_ended_session_stays_ended(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"1", b"", LONG).await.unwrap());
    at_once(30, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let key = key.clone();
        async move {
            match number % 5 {
                0 => drop(store.end(&key, LONG).await.unwrap()),
                1 => drop(
                    store
                        .update(&key, Version(1), b"2", Some(b"x"))
                        .await
                        .unwrap(),
                ),
                2 => drop(store.touch(&key, LONG).await.unwrap()),
                3 => drop(store.put_jar(&key, Version(1), b"late").await.unwrap()),
                _ => drop(store.create(&key, b"again", b"", LONG).await.unwrap()),
            }
        }
    })
    .await;
    for store in [&a, &b] {
        assert_eq!(store.load(&key).await.unwrap(), KeyState::Ended);
        for version in 1..4 {
            let late = store.update(&key, Version(version), b"late", None).await;
            assert_eq!(late.unwrap(), UpdateOutcome::Gone);
            assert!(
                !store
                    .put_jar(&key, Version(version), b"late")
                    .await
                    .unwrap()
            );
        }
        assert!(!store.touch(&key, LONG).await.unwrap());
        assert!(!store.create(&key, b"late", b"", LONG).await.unwrap());
        assert_eq!(store.end(&key, LONG).await.unwrap(), None);
        assert_eq!(store.load(&key).await.unwrap(), KeyState::Ended);
    }
}

async fn what_is_absent_cannot_be_changed(Fixture { a, .. }: Fixture) {
    let key = fresh_key();
    let update = a.update(&key, Version::FIRST, b"x", None).await.unwrap();
    assert_eq!(update, UpdateOutcome::Gone);
    assert!(!a.touch(&key, LONG).await.unwrap());
    assert!(!a.put_jar(&key, Version::FIRST, b"x").await.unwrap());
    assert_eq!(a.end(&key, LONG).await.unwrap(), None);
    // Ending an absent key leaves nothing: otherwise strangers could fill the store.
    assert_eq!(a.load(&key).await.unwrap(), KeyState::Absent);
    assert!(a.create(&key, b"x", b"", LONG).await.unwrap());
}

async fn a_session_lives_as_long_as_it_is_touched(Fixture { a, b, .. }: Fixture) {
    let (idle, used) = (fresh_key(), fresh_key());
    assert!(a.create(&used, b"x", b"jar", LONG).await.unwrap());
    // From here on it has a short time as well.
    assert!(b.touch(&used, SHORT).await.unwrap());
    assert!(a.create(&idle, b"x", b"jar", SHORT).await.unwrap());
    // A write is not a touch.
    a.update(&idle, Version(1), b"y", Some(b"z")).await.unwrap();
    assert!(a.put_jar(&idle, Version(2), b"jar").await.unwrap());
    let (watching, keeping) = (Arc::clone(&a), idle.clone());
    until("the idle session is gone", || {
        let (watching, keeping, using) = (Arc::clone(&watching), keeping.clone(), used.clone());
        let touching = Arc::clone(&b);
        async move {
            assert!(touching.touch(&using, SHORT).await.unwrap());
            watching.load(&keeping).await.unwrap() == KeyState::Absent
        }
    })
    .await;
    live(a.load(&used).await.unwrap());
    // All of it is gone, and its key is free.
    assert!(!a.touch(&idle, LONG).await.unwrap());
    let update = a.update(&idle, Version(2), b"late", None).await.unwrap();
    assert_eq!(update, UpdateOutcome::Gone);
    assert!(!a.put_jar(&idle, Version(2), b"late").await.unwrap());
    assert_eq!(a.end(&idle, LONG).await.unwrap(), None);
    assert!(a.create(&idle, b"new", b"", LONG).await.unwrap());
    let new = live(b.load(&idle).await.unwrap());
    assert_eq!(
        (new.version, new.jar.as_slice()),
        (Version::FIRST, &b""[..])
    );
}

async fn a_tombstone_is_forgotten_in_the_end(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"x", b"", LONG).await.unwrap());
    assert!(a.touch(&key, LONG).await.unwrap());
    assert!(a.end(&key, SHORT).await.unwrap().is_some());
    assert_eq!(b.load(&key).await.unwrap(), KeyState::Ended);
    until("the tombstone is gone", || async {
        b.load(&key).await.unwrap() == KeyState::Absent
    })
    .await;
}

async fn expiring_hands_what_is_unused_to_one_caller(Fixture { a, b, .. }: Fixture) {
    let (unused, used, ended) = (fresh_key(), fresh_key(), fresh_key());
    for key in [&unused, &used, &ended] {
        assert!(a.create(key, b"record", b"jar", LONG / 2).await.unwrap());
    }
    assert!(b.touch(&used, LONG).await.unwrap());
    assert!(a.end(&ended, LONG).await.unwrap().is_some());
    // All of them have more time left.
    for key in [&unused, &used, &ended] {
        assert_eq!(b.expire(key, SHORT).await.unwrap(), None);
    }
    let expired = at_once(20, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let keys = [&unused, &used, &ended].map(Clone::clone);
        async move {
            let mut expired = Vec::new();
            for key in &keys {
                expired.push(store.expire(key, LONG * 3 / 4).await.unwrap());
            }
            expired
        }
    })
    .await;
    let handed = |at: usize| expired.iter().filter_map(move |one| one[at].as_ref());
    assert_eq!(handed(0).count(), 1);
    let what = handed(0).next().unwrap();
    assert_eq!(
        (&what.record[..], &what.jar[..]),
        (&b"record"[..], &b"jar"[..])
    );
    assert_eq!((handed(1).count(), handed(2).count()), (0, 0));
    // It is gone entirely; used and ended keys are unchanged.
    assert_eq!(a.load(&unused).await.unwrap(), KeyState::Absent);
    let late = b.update(&unused, Version(1), b"late", None).await.unwrap();
    assert_eq!(late, UpdateOutcome::Gone);
    assert!(!b.touch(&unused, LONG).await.unwrap());
    live(a.load(&used).await.unwrap());
    assert_eq!(b.load(&ended).await.unwrap(), KeyState::Ended);
    assert_eq!(a.expire(&fresh_key(), LONG).await.unwrap(), None);
}

async fn sessions_are_counted(Fixture { a, b, .. }: Fixture) {
    assert_eq!(a.count().await.unwrap(), 0);
    let keys: Vec<_> = (0..6).map(|_| fresh_key()).collect();
    for key in &keys {
        assert!(a.create(key, b"x", b"", LONG).await.unwrap());
    }
    assert!(!b.create(&keys[0], b"x", b"", LONG).await.unwrap());
    // A key that is not a session's is not counted.
    let other = Key::named("tools", &["no session"]);
    assert!(a.create(&other, b"x", b"", LONG).await.unwrap());
    assert_eq!(b.count().await.unwrap(), 6);
    assert!(b.end(&keys[0], LONG).await.unwrap().is_some());
    assert!(b.expire(&keys[1], LONG).await.unwrap().is_some());
    assert_eq!(b.end(&keys[1], LONG).await.unwrap(), None);
    assert!(b.touch(&keys[2], LONG).await.unwrap());
    assert_eq!(a.count().await.unwrap(), 4);
}

async fn a_jar_is_kept_only_for_its_version(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert!(a.create(&key, b"x", b"old", LONG).await.unwrap());
    assert!(a.put_jar(&key, Version(1), b"one").await.unwrap());
    assert!(b.put_jar(&key, Version(1), b"two").await.unwrap());
    let loaded = live(a.load(&key).await.unwrap());
    assert_eq!(
        (loaded.jar.as_slice(), loaded.version),
        (&b"two"[..], Version(1))
    );
    // A new generation has its own cookies; a cookie of the old one arrives late.
    a.update(&key, Version(1), b"y", Some(b"new"))
        .await
        .unwrap();
    assert!(!b.put_jar(&key, Version(1), b"late").await.unwrap());
    assert_eq!(live(a.load(&key).await.unwrap()).jar, b"new");
    // An update that keeps the jar does not invalidate its writers.
    a.update(&key, Version(2), b"z", None).await.unwrap();
    assert!(b.put_jar(&key, Version(2), b"newer").await.unwrap());
    assert_eq!(live(a.load(&key).await.unwrap()).jar, b"newer");
}

async fn numbers_grow_for_whoever_asks(Fixture { a, b, .. }: Fixture) {
    let key = fresh_key();
    assert_eq!(a.next_number(&key).await.unwrap(), None);
    assert_eq!(a.load(&key).await.unwrap(), KeyState::Absent);
    assert_eq!(b.last_number(&key).await.unwrap(), None);
    assert!(a.create(&key, b"x", b"", LONG).await.unwrap());
    assert_eq!(b.last_number(&key).await.unwrap(), Some(0));
    let numbers = at_once(50, |number| {
        let (store, key) = (
            Arc::clone(if number % 2 == 0 { &a } else { &b }),
            key.clone(),
        );
        async move { store.next_number(&key).await.unwrap().unwrap() }
    });
    let mut numbers = numbers.await;
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 50);
    let highest = numbers.last().copied();
    assert_eq!(a.last_number(&key).await.unwrap(), highest);
    assert!(b.next_number(&key).await.unwrap() > highest);
    let found = live(a.load(&key).await.unwrap());
    assert_eq!(
        (found.version, &found.record[..]),
        (Version::FIRST, &b"x"[..])
    );
    assert!(a.end(&key, LONG).await.unwrap().is_some());
    assert_eq!(b.next_number(&key).await.unwrap(), None);
    assert_eq!(b.last_number(&key).await.unwrap(), None);
    assert_eq!(b.load(&key).await.unwrap(), KeyState::Ended);
}

async fn a_claim_has_one_holder(Fixture { a, b, .. }: Fixture) {
    let won = at_once(30, |number| {
        let store = Arc::clone(if number % 2 == 0 { &a } else { &b });
        let holder = number.to_string();
        async move {
            let held = store.claim("one", &holder, LONG).await.unwrap();
            held.then_some(holder)
        }
    })
    .await;
    let winners: Vec<_> = won.into_iter().flatten().collect();
    assert_eq!(winners.len(), 1, "{winners:?}");
    let holder = winners[0].as_str();
    // Its holder may claim again, for example after a lost response.
    assert!(b.claim("one", holder, LONG).await.unwrap());
    assert!(!b.release("one", "stranger").await.unwrap());
    assert!(!b.claim("one", "stranger", LONG).await.unwrap());
    assert!(b.claim("two", "stranger", LONG).await.unwrap());
    assert!(a.release("one", holder).await.unwrap());
    assert!(!a.release("one", holder).await.unwrap());
    assert!(b.claim("one", "stranger", LONG).await.unwrap());
}

async fn a_claim_ends_by_itself(Fixture { a, b, .. }: Fixture) {
    assert!(a.claim("one", "a", SHORT).await.unwrap());
    until("the claim is free", || async {
        b.claim("one", "b", LONG).await.unwrap()
    })
    .await;
    // The old holder notices and changes nothing.
    assert!(!a.claim("one", "a", LONG).await.unwrap());
    assert!(!a.release("one", "a").await.unwrap());
    assert!(b.claim("one", "b", SHORT).await.unwrap());
    until("the claim is over", || async {
        a.claim("one", "a", LONG).await.unwrap()
    })
    .await;
    assert!(!b.release("one", "b").await.unwrap());
}

async fn announcements_reach_every_listener(Fixture { a, b, .. }: Fixture) {
    let mut listeners = [a.listen(), a.listen(), b.listen()];
    for listener in &mut listeners {
        assert_eq!(hear(listener).await, ListenerEvent::Whole);
    }
    let said = |number: u8| SealedAnnouncement {
        kind: number,
        body: Bytes::from(vec![number, 0, 255]),
    };
    let empty = SealedAnnouncement {
        kind: 0,
        body: Bytes::new(),
    };
    a.announce(&empty).await.unwrap();
    for number in 1..=9 {
        a.announce(&said(number)).await.unwrap();
    }
    for listener in &mut listeners {
        assert_eq!(
            hear(listener).await,
            ListenerEvent::Announcement(empty.clone())
        );
        for number in 1..=9 {
            assert_eq!(
                hear(listener).await,
                ListenerEvent::Announcement(said(number))
            );
        }
    }
}

async fn gateways(store: &Store) -> Vec<Presence> {
    let listed = store.gateways().await.unwrap();
    let present = listed.into_iter().filter(|one| !one.left.is_zero());
    present.map(|one| one.presence.unwrap()).collect()
}

async fn gateways_see_each_other(Fixture { a, b, .. }: Fixture) {
    let presence = |id: &str, servers: &str| Presence {
        id: id.to_owned(),
        version: "0.1.0".to_owned(),
        seal_keys: vec!["00ff".to_owned()],
        servers: servers.to_owned(),
        peer: None,
    };
    assert_eq!(gateways(&a).await, []);
    a.appear(&presence("two", "s"), LONG).await.unwrap();
    b.appear(&presence("one", "s"), LONG).await.unwrap();
    // A gateway updates its entry.
    a.appear(&presence("two", "t\" }"), LONG).await.unwrap();
    let both = [presence("one", "s"), presence("two", "t\" }")];
    assert_eq!(gateways(&a).await, both);
    assert_eq!(gateways(&b).await, both);
    b.leave("one").await.unwrap();
    assert_eq!(gateways(&a).await, both[1..]);
    // An entry that is not renewed disappears.
    a.appear(&presence("two", "s"), SHORT).await.unwrap();
    until("the silent gateway is gone", || async {
        gateways(&b).await.is_empty()
    })
    .await;
}

async fn too_much_is_refused(Fixture { a, .. }: Fixture) {
    let key = fresh_key();
    let (most, more) = (vec![1; LARGEST_VALUE], vec![1; LARGEST_VALUE + 1]);
    let refused = |error: Option<StoreError>| matches!(error, Some(StoreError::TooLarge { .. }));
    assert!(refused(a.create(&key, &more, b"", LONG).await.err()));
    assert!(refused(a.create(&key, b"", &more, LONG).await.err()));
    assert!(a.create(&key, &most, &most, LONG).await.unwrap());
    assert!(refused(a.update(&key, Version(1), &more, None).await.err()));
    assert!(refused(a.put_jar(&key, Version(1), &more).await.err()));
    assert_eq!(live(a.load(&key).await.unwrap()).record, most);
    let long = SealedAnnouncement {
        kind: 1,
        body: vec![1; LARGEST_ANNOUNCEMENT + 1].into(),
    };
    assert!(refused(a.announce(&long).await.err()));
}
