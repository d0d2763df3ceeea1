use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::session::{Believed, Caller, Offered, Seal};
use crate::store::sealed::SealKeys;
use crate::store::{Memory, Store};
use crate::telemetry::Metrics;

/// A session that is kept in a store of this process, over a server that nobody dials.
async fn kept() -> Arc<Session> {
    let store = Arc::new(Store::Memory(Memory::new()));
    let keys = SealKeys::parse(&"A".repeat(43)).unwrap();
    let times = (Duration::from_secs(600), Duration::from_secs(30));
    let with = (TaskTracker::new(), Metrics::new().of_store("memory"));
    let keeper = Arc::new(Keeper::new((store, keys), "me".into(), times, with));
    let id = SessionId::from_random([7; SessionId::BYTES]);
    let initialize = Bytes::from_static(b"{}");
    let believed = Believed::new(&initialize, None, Offered::default());
    let seal = Seal::generate().unwrap();
    let session = Session::new(&id, Caller::Local, seal, Leg::idle(), believed);
    let session = Arc::new(session.kept_by(Kept::new(&keeper, &id, "s")));
    let place = session.kept.as_ref().unwrap();
    place.create(&session).await.unwrap();
    session
}

fn generation(number: u32) -> Arc<Leg> {
    let mut leg = Leg::idle();
    leg.at.generation = number;
    Arc::new(leg)
}

/// Whoever writes takes the version and the leg under one lock: at no time is there a version without
/// the generation that was published with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_and_its_version_become_visible_together() {
    let session = kept().await;
    let (looking, over) = (Arc::clone(&session), CancellationToken::new());
    // Also if this test fails.
    let (watched, _over) = (over.clone(), over.clone().drop_guard());
    let watching = tokio::task::spawn_blocking(move || {
        let kept = looking.kept.as_ref().unwrap();
        let mut looks = 0_u64;
        while !watched.is_cancelled() {
            let place = kept.place.lock();
            let (version, generation) = (place.version.0, looking.leg().at.generation);
            assert_eq!(version, u64::from(generation), "after {looks} looks");
            looks += 1;
        }
    });
    for number in LegRef::FIRST.generation + 1..3000 {
        let published = session.publish(&generation(number)).await.unwrap();
        assert!(matches!(published, Published::Done), "{published:?}");
    }
    over.cancel();
    watching.await.unwrap();
}

/// Writers race with publishers; what is in the store never falls behind a generation that was
/// published.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_saves_writes_no_older_generation_over_a_newer() {
    let session = kept().await;
    let kept = session.kept.as_ref().unwrap();
    let saving = Arc::clone(&session);
    let over = CancellationToken::new();
    // Also if this test fails.
    let (ended, _over) = (over.clone(), over.clone().drop_guard());
    let saves = TaskTracker::new().spawn(async move {
        while !ended.is_cancelled() {
            // Whoever meets another writer again and again gives up for now.
            match saving.kept.as_ref().unwrap().save(&saving, || {}).await {
                Ok(_) | Err(Unsure::Contended) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
    });
    for number in LegRef::FIRST.generation + 1..500 {
        let leg = generation(number);
        loop {
            match session.publish(&leg).await {
                Ok(Published::Done) => break,
                Err(Unsure::Contended) => tokio::task::yield_now().await,
                other => panic!("{other:?}"),
            }
        }
        let Loaded::Live(live) = kept.keeper.store.load(&kept.key).await.unwrap() else {
            panic!("gone");
        };
        assert_eq!(kept.open(&live).unwrap().generation, number);
    }
    over.cancel();
    saves.await.unwrap();
}

#[tokio::test]
async fn a_store_that_was_put_back_is_written_on_top_of() {
    let session = kept().await;
    let kept = session.kept.as_ref().unwrap();
    let (store, key) = (&kept.keeper.store, &kept.key);
    let Loaded::Live(old) = store.load(key).await.unwrap() else {
        panic!("gone");
    };
    let second = LegRef::FIRST.generation + 1;
    session.publish(&generation(second)).await.unwrap();
    kept.save(&session, || {}).await.unwrap();
    // As it was at the start.
    let put_back = async || {
        store.end(key, Duration::ZERO).await.unwrap();
        let created = store.create(key, &old.record, &old.jar, Duration::from_secs(600));
        assert!(created.await.unwrap());
    };
    put_back().await;
    kept.save(&session, || {}).await.unwrap();
    let generation_there = async || match store.load(key).await.unwrap() {
        Loaded::Live(live) => kept.open(&live).unwrap().generation,
        other => panic!("{other:?}"),
    };
    assert_eq!(generation_there().await, second);
    put_back().await;
    session.publish(&generation(second + 1)).await.unwrap();
    assert_eq!(generation_there().await, second + 1);
    // Whoever looks again writes what it knows.
    put_back().await;
    assert!(kept.refresh(&session).await.unwrap());
    assert_eq!(generation_there().await, second + 1);
    assert_eq!(session.leg().at.generation, second + 1);
}
