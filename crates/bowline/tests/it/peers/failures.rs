//! The way to the owner fails, or the owner's way to the store: nothing runs twice, and nothing is lost that lives.

use std::net::SocketAddr;
use std::time::Duration;

use bowline_testbed::faulty::Faulty;
use bowline_testbed::redis::{Fitness, Redis};
use serde_json::json;

use super::fleet::{Fleet, calling, peers};
use crate::kit::across::assert_cannot_know;
use crate::kit::cable::Cable;
use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::programs::{text_of, until_gone};
use crate::kit::stores::{at_redis, call_back, send_away};
use crate::kit::wait::until_so;

/// A port that is free now.
pub(super) fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// Two gateways; the first is reached through a proxy.
async fn behind_proxy() -> Option<(Fleet, Faulty)> {
    let owner = free_port();
    let proxy = Faulty::start(owner).await.unwrap();
    let advertised = proxy.address().to_string();
    let fleet = Fleet::start_with(2, |number, config| {
        only(config).recovery.budget = Duration::from_secs(9);
        if number == 0 {
            let peers = config.peers.as_mut().unwrap();
            peers.listen = owner;
            peers.advertise = Some(advertised.clone());
        }
    });
    Some((fleet.await?.open().await, proxy))
}

#[tokio::test]
async fn an_owner_that_cannot_be_reached_keeps_its_session() {
    let Some((fleet, proxy)) = behind_proxy().await else {
        return;
    };
    let pid = fleet.pid(1).await;
    proxy.refuse().await;
    proxy.break_connections();
    let answer = fleet.at(1).call(1, "bump", &json!({"key": "cut"})).await;
    assert_cannot_know(&answer);
    // On a slow machine the recovery's time is over first.
    let reason = answer.json()["error"]["data"]["reason"].clone();
    assert!(
        reason == "owner_unreachable" || reason == "not_recovered",
        "{reason}"
    );
    // The owner is not disturbed, and neither is its process.
    assert_eq!(fleet.pid(0).await, pid);
    proxy.accept().unwrap();
    until_so("the owner is reached again", async || {
        let answer = fleet.at(1).call(2, "peek", &json!({"key": "back"})).await;
        answer.status == 200 && text_of(&answer) == pid.to_string()
    })
    .await;
    assert_eq!(
        (fleet.tally.count("bump cut"), fleet.tally.starts()),
        (0, 1)
    );
}

#[tokio::test]
async fn a_call_whose_hop_breaks_is_not_repeated_unless_it_may_be() {
    let Some((fleet, proxy)) = behind_proxy().await else {
        return;
    };
    fleet.learn_tools(1).await;
    let pid = fleet.pid(1).await;
    for (tool, id) in [("wait", 1), ("wait_safely", 2)] {
        let (client, call) = (fleet.at(1), calling(id, tool, &json!({"key": tool})));
        let noted = format!("{tool} {tool}");
        let breaking = async {
            fleet.tally.until(&noted, 1).await;
            proxy.break_connections();
            if tool == "wait_safely" {
                fleet.tally.until(&noted, 2).await;
                std::fs::write(fleet.tally.path().with_extension("go"), "").unwrap();
            }
        };
        let (answer, ()) = tokio::join!(client.send(&call), breaking);
        match tool {
            "wait" => assert_eq!(answer.failure(), Some(-31001), "{answer:?}"),
            _ => assert!(
                answer.to(&json!(id)).unwrap()["result"].is_object(),
                "{answer:?}"
            ),
        }
    }
    assert_eq!(fleet.tally.count("wait wait"), 1);
    assert_eq!(fleet.pid(1).await, pid);
    assert_eq!(fleet.tally.starts(), 1);
}

#[tokio::test]
async fn an_owner_without_its_store_is_used_as_long_as_it_may_be() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let fleet = fleet.open().await;
    let pid = fleet.pid(1).await;
    send_away(&fleet.redis).await;
    let mut ran = 0;
    for id in 0..20 {
        let answer = fleet.at(1).call(id, "bump", &json!({"key": "away"})).await;
        match answer.status.as_u16() {
            200 => ran += 1,
            _ => assert_cannot_know(&answer),
        }
        // The store is away for four seconds in all: longer than a copy is used without asking, and shorter than the
        // presence of the owner.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    call_back(&fleet.redis).await;
    until_so("the session goes on", async || {
        let answer = fleet.at(1).call(1, "peek", &json!({"key": "back"})).await;
        answer.status == 200 && text_of(&answer) == pid.to_string()
    })
    .await;
    assert_eq!(fleet.tally.count("bump away"), ran);
    assert_eq!(fleet.tally.starts(), 1);
}

#[tokio::test]
async fn gateways_with_different_secrets_forward_nothing() {
    let other = "another secret, which nobody told the first one";
    let Some(fleet) = Fleet::start_with(2, |number, config| {
        only(config).recovery.budget = Duration::from_secs(9);
        if number == 1 {
            config.peers = Some(peers(other));
        }
    })
    .await
    else {
        return;
    };
    let fleet = fleet.open().await;
    let answer = fleet.at(1).call(1, "bump", &json!({"key": "k"})).await;
    assert_cannot_know(&answer);
    let error = &answer.json()["error"];
    assert_eq!(error["data"]["reason"], "owner_unreachable", "{error}");
    assert!(error.to_string().contains("secret"), "{error}");
    assert!(fleet.count(0, "forwards_received", "unauthenticated").await > 0);
    assert!(fleet.count(1, "forwards", "stranger").await > 0);
    assert_eq!(fleet.pid(0).await, fleet.tally.pids()[0]);
    assert_eq!((fleet.tally.count("bump k"), fleet.tally.starts()), (0, 1));
}

#[tokio::test]
async fn a_caller_that_the_owner_does_not_know_any_more_is_refused() {
    let key = "a-key-of-ann-and-of-nobody-else";
    let callers = |config: &mut bowline::config::Config| {
        let caller =
            bowline::config::Caller::with_key(bowline::config::KeyHash::of(key.as_bytes()));
        config.callers.insert("ann".parse().unwrap(), caller);
        only(config).recovery.budget = Duration::from_secs(9);
    };
    let Some(mut fleet) = Fleet::start_with(2, |_, config| callers(config)).await else {
        return;
    };
    fleet.client = Client::new(&fleet.gateways[0]).with_key(key);
    let fleet = fleet.open().await;
    assert_eq!(fleet.pid(1).await, fleet.tally.pids()[0]);
    let mut config = super::fleet::config(&fleet.redis, &fleet.tally);
    only(&mut config).recovery.budget = Duration::from_secs(9);
    let other = bowline::config::KeyHash::of(b"a-key-of-bob-and-of-nobody-else");
    config.callers.insert(
        "bob".parse().unwrap(),
        bowline::config::Caller::with_key(other),
    );
    fleet.gateways[0].reload(config).unwrap();
    let answer = fleet.at(1).call(1, "bump", &json!({"key": "gone"})).await;
    assert_cannot_know(&answer);
    assert_eq!(
        answer.json()["error"]["data"]["reason"],
        "owner_unreachable"
    );
    assert_eq!(fleet.tally.count("bump gone"), 0);
    assert!(fleet.count(0, "forwards_received", "refused").await > 0);
}

/// Longer than its heartbeat holds: the others take it for gone, while its process and its clients are there.
#[tokio::test]
async fn an_owner_that_is_cut_off_from_the_store_is_stood_in_for_and_nothing_runs_twice() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let url = redis.url();
    let there = url.trim_start_matches("redis://").trim_end_matches('/');
    let cable = Cable::to(there.parse().unwrap()).await;
    let through = format!("redis://{}", cable.address);
    let fleet = Fleet::start_on(redis, 2, |number, config| {
        only(config).recovery.budget = Duration::from_secs(30);
        if number == 0 {
            config.store = at_redis(&through);
        }
    });
    let fleet = fleet.await.open().await;
    let first = fleet.pid(1).await;
    cable.cut();
    // Both sides are asked all the time. What one of them does not know, it does not run.
    let mut ran = 0;
    let second = loop {
        for (gateway, key) in [(0, "owner"), (1, "other")] {
            let answer = fleet
                .at(gateway)
                .call(gateway, "bump", &json!({ "key": key }))
                .await;
            match answer.status.as_u16() {
                200 if answer.failure().is_none() => ran += 1,
                200 => assert_eq!(answer.failure(), Some(-31001), "{answer:?}"),
                _ => assert_cannot_know(&answer),
            }
        }
        let answer = fleet.at(1).call(7, "peek", &json!({"key": "pid"})).await;
        if answer.status == 200 && answer.failure().is_none() {
            let pid = text_of(&answer).parse::<u32>().unwrap();
            if pid != first {
                break pid;
            }
        }
    };
    // The one that was given up may not use what it has.
    let late = fleet.at(0).call(8, "bump", &json!({"key": "late"})).await;
    assert_cannot_know(&late);
    cable.mend();
    until_gone(first).await;
    until_so("it serves the session by its new owner", async || {
        let answer = fleet.at(0).call(9, "peek", &json!({"key": "back"})).await;
        answer.status == 200 && answer.failure().is_none() && text_of(&answer) == second.to_string()
    })
    .await;
    let bumps = fleet.tally.count("bump owner") + fleet.tally.count("bump other");
    assert!(bumps >= ran, "{bumps} ran, {ran} were answered");
    assert_eq!(
        (fleet.tally.count("bump late"), fleet.tally.starts()),
        (0, 2)
    );
}

/// Its owner heard that the tools changed. The Redis is full, so the store cannot say so; the owner's word does.
#[tokio::test]
async fn what_an_owner_heard_counts_although_its_redis_is_full() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let fleet = fleet.open().await;
    fleet.learn_tools(1).await;
    let pid = fleet.pid(1).await;
    fleet.redis.become_fit(Fitness::Full).await.unwrap();
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let (owner, other) = (fleet.at(0), fleet.at(1));
    let written = owner.call(1, "write", &json!({"lines": [changed]})).await;
    assert_eq!(text_of(&written), "written");
    let dying = async {
        until_gone(pid).await;
        // So that the session can be recovered.
        fleet.redis.become_fit(Fitness::Fit).await.unwrap();
    };
    let exits = json!({"key": "changed", "then": "exit"});
    let (answer, ()) = tokio::join!(other.call(2, "peek", &exits), dying);
    assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    assert_eq!(fleet.tally.count("peek changed"), 1);
}
