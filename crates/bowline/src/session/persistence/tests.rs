use bowline_store::sealed::SealKeys;
use bowline_store::{Memory, Store};
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::caller::Caller;
use crate::leg::capabilities::Capabilities;
use crate::leg::marks::Seal;
use crate::session::client_state::ClientState;
use crate::session_store::SessionTimes;
use crate::telemetry::Metrics;

/// A session in an in-process store. Its server is never contacted.
async fn kept() -> Arc<Session> {
    let store = Arc::new(Store::Memory(Memory::new()));
    let keys = SealKeys::parse(&"A".repeat(43)).unwrap();
    let times = SessionTimes {
        idle: Duration::from_secs(600),
        grace: Duration::from_secs(30),
    };
    let (tracker, counts) = (TaskTracker::new(), Metrics::new().of_store("memory"));
    let session_store = SessionStore::new(store, keys, "me".into(), times, tracker, counts);
    let session_store = Arc::new(session_store);
    let id = SessionId::from_random([7; SessionId::BYTES]);
    let initialize = Bytes::from_static(b"{}");
    let client_state = ClientState::new(&initialize, None, Capabilities::default());
    let seal = Seal::generate().unwrap();
    let session = Session::new(&id, Caller::Local, seal, Leg::idle(), client_state);
    let session = Arc::new(session.persisted_by(Persistence::new(&session_store, &id, "s")));
    let stored = session.persistence.as_ref().unwrap();
    stored.create(&session).await.unwrap();
    session
}

fn generation(number: u32) -> Arc<Leg> {
    let mut leg = Leg::idle();
    leg.generation.number = number;
    Arc::new(leg)
}

/// A writer takes the version and the leg under one lock: no version is ever visible without the
/// generation that was published with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_and_its_version_become_visible_together() {
    let session = kept().await;
    let (looking, over) = (Arc::clone(&session), CancellationToken::new());
    // Stops the task also if this test fails.
    let (watched, _over) = (over.clone(), over.clone().drop_guard());
    let watching = tokio::task::spawn_blocking(move || {
        let persistence = looking.persistence.as_ref().unwrap();
        let mut looks = 0_u64;
        while !watched.is_cancelled() {
            let stored = persistence.stored.lock();
            let (version, generation) = (stored.version.0, looking.leg().generation.number);
            assert_eq!(version, u64::from(generation), "after {looks} looks");
            looks += 1;
        }
    });
    for number in Generation::FIRST.number + 1..3000 {
        let published = session.publish(&generation(number)).await.unwrap();
        assert!(matches!(published, Published::Done), "{published:?}");
    }
    over.cancel();
    watching.await.unwrap();
}

/// Writers race with publishers. The store never falls behind a generation that was published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_saves_writes_no_older_generation_over_a_newer() {
    let session = kept().await;
    let persistence = session.persistence.as_ref().unwrap();
    let saving = Arc::clone(&session);
    let over = CancellationToken::new();
    // Stops the task also if this test fails.
    let (ended, _over) = (over.clone(), over.clone().drop_guard());
    let saves = TaskTracker::new().spawn(async move {
        while !ended.is_cancelled() {
            // A writer that meets too many conflicts gives up for now.
            match saving
                .persistence
                .as_ref()
                .unwrap()
                .save(&saving, || {})
                .await
            {
                Ok(_) | Err(PersistenceError::Contended) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    for number in Generation::FIRST.number + 1..500 {
        let leg = generation(number);
        loop {
            match session.publish(&leg).await {
                Ok(Published::Done) => break,
                Err(PersistenceError::Contended) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
        let KeyState::Live(live) = persistence
            .session_store
            .store
            .load(&persistence.key)
            .await
            .unwrap()
        else {
            panic!("gone");
        };
        assert_eq!(persistence.open(&live).unwrap().generation, number);
    }
    over.cancel();
    saves.await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_put_back_is_written_on_top_of() {
    let session = kept().await;
    let persistence = session.persistence.as_ref().unwrap();
    let (store, key) = (&persistence.session_store.store, &persistence.key);
    let KeyState::Live(old) = store.load(key).await.unwrap() else {
        panic!("gone");
    };
    let second = Generation::FIRST.number + 1;
    session.publish(&generation(second)).await.unwrap();
    persistence.save(&session, || {}).await.unwrap();
    // Restores the state from the start.
    let put_back = async || {
        store.end(key, Duration::ZERO).await.unwrap();
        let created = store.create(key, &old.record, &old.jar, Duration::from_secs(600));
        assert!(created.await.unwrap());
    };
    put_back().await;
    persistence.save(&session, || {}).await.unwrap();
    let generation_there = async || match store.load(key).await.unwrap() {
        KeyState::Live(live) => persistence.open(&live).unwrap().generation,
        other => panic!("{other:?}"),
    };
    assert_eq!(generation_there().await, second);
    put_back().await;
    session.publish(&generation(second + 1)).await.unwrap();
    assert_eq!(generation_there().await, second + 1);
    // The next refresh writes this gateway's state.
    put_back().await;
    assert!(persistence.refresh(&session).await.unwrap());
    assert_eq!(generation_there().await, second + 1);
    assert_eq!(session.leg().generation.number, second + 1);
}
