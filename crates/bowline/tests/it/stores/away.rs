//! While the store cannot be asked: what is known goes on for a while, nothing is invented, and
//! nothing that ended comes back.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::PATIENCE;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::kit::across::{Across, assert_cannot_know, until_gone, until_status, with_grace};
use crate::kit::client::{Client, sent};
use crate::kit::gateway::{admin, health};
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::{call_back, command, in_redis, keys, raw, send_away};

/// Waits until this is the status of `/ready`.
pub(super) async fn until_ready_is(gateway: &Gateway, status: u16) {
    let waiting = async {
        while admin(gateway, "/ready").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "/ready never was {status}");
}

/// Waits until the gateway knows that its store is away.
pub(super) async fn until_away(gateway: &Gateway) {
    let waiting = async {
        while health(gateway).await["store"]["status"] != "unavailable" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never noticed");
}

/// What a client meets while Redis is away: A knows the session, B does not.
async fn is_away(across: &mut Across, client: &Client) {
    let began = Instant::now();
    across.works_at(client, 0, "u1").await;
    let first = began.elapsed();
    assert!(first < Duration::from_secs(2), "{first:?}");
    until_away(&across.gateways[0]).await;
    // Known to be away, it is not waited for.
    let began = Instant::now();
    across.works_at(client, 0, "u1").await;
    let second = began.elapsed();
    assert!(second < Duration::from_millis(300), "{second:?}");
    // Where nobody knows the session nobody knows whether there is one.
    let at_b = across.at(client, 1);
    assert_cannot_know(&at_b.send(&call(1)).await);
    assert_cannot_know(&sent(at_b.get()).await);
    assert_cannot_know(&sent(at_b.delete()).await);
    // Nobody can promise to end it everywhere.
    assert_cannot_know(&sent(client.delete()).await);
    // A session that could not be kept is not given to anybody.
    let mut newcomer = across.at(client, 1);
    newcomer.session = None;
    let (refused, ()) = tokio::join!(newcomer.initialize(), async {
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.initialized(Some("newborn"));
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        assert_eq!(asked.header("mcp-session-id"), "newborn");
        asked.reply(204, &[], "");
    });
    assert_cannot_know(&refused);
    // The near cache is not believed for ever.
    until_status(across, client, 503, 200).await;
}

#[tokio::test]
async fn a_redis_that_refuses_loses_nothing() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    send_away(&across.redis).await;
    is_away(&mut across, &client).await;
    call_back(&across.redis).await;
    until_status(&mut across, &client, 200, 503).await;
    // The DELETE that was refused has not ended it, here or elsewhere.
    across.works_at(&client, 1, "u1").await;
    until_ready_is(&across.gateways[0], 200).await;
}

#[tokio::test]
async fn the_grace_begins_when_the_store_goes_not_when_the_session_was_last_used() {
    let mut across = Across::start_with(1, |config| {
        with_grace(config);
        config.store.grace = Duration::from_secs(5);
    })
    .await;
    let client = across.open().await;
    // Seen once since the gateway hears of changes; then nobody uses it.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    across.works_at(&client, 0, "u1").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    send_away(&across.redis).await;
    across.works_at(&client, 0, "u1").await;
    until_status(&mut across, &client, 503, 200).await;
}

#[tokio::test]
async fn a_redis_that_hangs_is_waited_for_and_then_not() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    across.redis.pause().await.unwrap();
    is_away(&mut across, &client).await;
    across.redis.resume().await.unwrap();
    until_ready_is(&across.gateways[1], 200).await;
    // The DELETE that got no answer may have been carried out: it is the same everywhere.
    let statuses = async |across: &mut Across, gateway| {
        let at = across.at(&client, gateway);
        let message = call("after");
        let sent = at.send(&message);
        tokio::pin!(sent);
        loop {
            tokio::select! {
                answer = &mut sent => break answer.status.as_u16(),
                asked = across.server.next() => asked.result(&json!({})),
            }
        }
    };
    let one = statuses(&mut across, 1).await;
    assert!([200, 404].contains(&one), "{one}");
    until_status(&mut across, &client, one, 503).await;
}

#[tokio::test]
async fn a_gateway_is_ready_for_as_long_as_it_serves_and_says_what_is_wrong() {
    // Longer than it takes to notice.
    let grace = Duration::from_secs(8);
    let mut across = Across::start_with(1, |config| {
        with_grace(config);
        config.store.grace = grace;
    })
    .await;
    let client = across.open().await;
    let gateway = &across.gateways[0];
    let ready = admin(gateway, "/ready").await;
    assert_eq!(
        (ready.status.as_u16(), ready.json()),
        (200, json!({"status": "ready"}))
    );
    assert_eq!(health(gateway).await["status"], "ok");
    let began = Instant::now();
    across.redis.pause().await.unwrap();
    until_away(gateway).await;
    let ready = admin(gateway, "/ready").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["status"]),
        (200, &json!("ready"))
    );
    let degraded = ready.json()["degraded"].as_str().unwrap().to_owned();
    assert!(degraded.contains("cached sessions continue"), "{degraded}");
    let told = health(gateway).await;
    assert_eq!(told["status"], "degraded");
    assert!(told["store"]["reason"].is_string(), "{told}");
    across.works_at(&client, 0, "u1").await;
    // Not longer than the configuration says, counted from the last answer.
    let gateway = &across.gateways[0];
    until_ready_is(gateway, 503).await;
    let lasted = began.elapsed();
    assert!(lasted < grace + Duration::from_millis(700), "{lasted:?}");
    let ready = admin(gateway, "/ready").await.json();
    assert_eq!(ready["status"], "not ready");
    assert!(
        ready["reason"].as_str().unwrap().contains("grace"),
        "{ready}"
    );
    assert_cannot_know(&client.send(&call(1)).await);
    across.redis.resume().await.unwrap();
    until_ready_is(&across.gateways[0], 200).await;
    assert_eq!(health(&across.gateways[0]).await["status"], "ok");
    across.works_at(&client, 0, "u1").await;
}

#[tokio::test]
async fn an_end_that_was_announced_is_an_end_also_while_the_store_is_away() {
    let mut across = Across::start_with(2, with_grace).await;
    let (client, other) = (
        across.open().await,
        Client::open(&across.gateways[0], &mut across.server, "u2").await,
    );
    for known in [&client, &other] {
        let upstream = if std::ptr::eq(known, &client) {
            "u1"
        } else {
            "u2"
        };
        across.works_at(known, 1, upstream).await;
    }
    let at_b = across.at(&client, 1);
    let (ended, ()) = tokio::join!(at_b.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    until_gone(&mut across, &client).await;
    across.redis.pause().await.unwrap();
    until_away(&across.gateways[0]).await;
    // The grace is for the other session, not for this one.
    assert_eq!(client.send(&call(1)).await.status, 404);
    across.works_at(&other, 0, "u2").await;
    until_status(&mut across, &other, 503, 200).await;
    assert_eq!(client.send(&call(1)).await.status, 404);
}

#[tokio::test]
async fn a_gateway_that_hears_nothing_believes_what_it_saw_and_no_longer() {
    let grace = Duration::from_secs(3);
    let mut across = Across::start_with(1, |config| {
        with_grace(config);
        config.store.grace = grace;
    })
    .await;
    let client = across.open().await;
    // Seen once since the gateway hears of changes; then nobody uses it.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    across.works_at(&client, 0, "u1").await;
    let mut connection = raw(&across.redis).await;
    // From now on it may ask, but not listen.
    for words in [
        &["ACL", "SETUSER", "default", "-subscribe"][..],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
    tokio::time::sleep(grace).await;
    // So it cannot have heard of this, although Redis answers it now.
    end_behind(&across.redis).await;
    Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.redis.pause().await.unwrap();
    until_away(&across.gateways[0]).await;
    assert_cannot_know(&client.send(&call(1)).await);
    across.server.finish();
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_is_told_what_a_gateway_knows() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    let ended = Client::open(&across.gateways[0], &mut across.server, "u9").await;
    let (deleted, ()) = tokio::join!(ended.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(deleted.unwrap().status(), 204);
    across.redis.kill().await.unwrap();
    is_away(&mut across, &client).await;
    across.redis.restart_empty().await.unwrap();
    // Where nobody knows it, there is none; where it is known, it is written anew for all.
    let at_b = across.at(&client, 1);
    until_status(&mut across, &at_b, 404, 503).await;
    until_status(&mut across, &client, 200, 503).await;
    across.works_at(&client, 1, "u1").await;
    // What has ended stays so.
    assert_eq!(ended.send(&call(1)).await.status, 404);
    // New sessions are kept again.
    let again = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.works_at(&again, 1, "u2").await;
}

#[tokio::test]
async fn a_session_that_ended_elsewhere_is_not_written_back() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    // A hears nothing of the end, and goes on from its near cache: it sets a level, it gets a cookie.
    send_away(&across.redis).await;
    until_away(&across.gateways[0]).await;
    let level = json!({"jsonrpc": "2.0", "id": 5, "method": "logging/setLevel", "params": {"level": "debug"}});
    let set = client.send_to(&mut across.server, &level, |asked| {
        asked.result_with(&[("set-cookie", "SRV=late; path=/")], &json!({}));
    });
    assert_eq!(set.await.status, 200);
    call_back(&across.redis).await;
    end_behind(&across.redis).await;
    until_status(&mut across, &client, 404, 200).await;
    let at_b = across.at(&client, 1);
    until_status(&mut across, &at_b, 404, 200).await;
    let mut connection = raw(&across.redis).await;
    for key in keys(&mut connection).await {
        let fields: Vec<String> = command(&["HKEYS", &key])
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(fields, ["e"], "{key}");
    }
}

/// Ends every session, as another gateway does whose announcement is lost.
async fn end_behind(redis: &Redis) {
    let mut connection = raw(redis).await;
    for key in keys(&mut connection).await {
        for words in [&["DEL", &*key][..], &["HSET", &*key, "e", "1"]] {
            command(words).exec_async(&mut connection).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_slow_redis_is_only_slow() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    // Everything takes a fifth of a second for a while: less than the timeout.
    let slowing = TaskTracker::new().spawn(async move {
        for _ in 0..8 {
            let busy = command(&["DEBUG", "SLEEP", "0.2"]);
            busy.exec_async(&mut connection).await.unwrap();
        }
    });
    for round in 0..4 {
        across.works_at(&client, round % 2, "u1").await;
    }
    let other = Client::open(&across.gateways[1], &mut across.server, "u2").await;
    across.works_at(&other, 0, "u2").await;
    slowing.await.unwrap();
}

/// A store that takes no writes when a recovery has opened the next upstream session: that one is ended, and the
/// recovery goes on until it can be written or the budget is used up.
#[tokio::test]
async fn a_recovery_goes_on_when_its_session_could_not_be_written() {
    let mut across = Across::start_with(1, with_grace).await;
    let client = across.open().await;
    let message = call("k");
    let calling = client.send(&message);
    tokio::pin!(calling);
    let (mut opened, mut ended) = (0, Vec::new());
    let answer = loop {
        let asked = tokio::select! {
            answer = &mut calling => break answer,
            asked = across.server.next() => asked,
        };
        match (asked.method.as_str(), asked.header("mcp-session-id")) {
            ("DELETE", id) => {
                ended.push(id.to_owned());
                asked.reply(204, &[], "");
                call_back(&across.redis).await;
            }
            (_, "u1") => forgot(asked),
            (_, "u2" | "u3") => asked.result(&json!({})),
            _ => {
                opened += 1;
                if opened == 1 {
                    send_away(&across.redis).await;
                }
                asked.initialized(Some(&format!("u{}", opened + 1)));
            }
        }
    };
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((opened, ended), (2, vec!["u2".to_owned()]));
    across.works_at(&client, 0, "u3").await;
}

/// A gateway that was started a moment ago, and does not hear the others yet, uses nothing from its memory.
#[tokio::test]
async fn a_session_that_ended_is_unknown_at_once_where_nothing_is_heard() {
    let mut across = Across::start(1).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    let deafens = command(&["ACL", "SETUSER", "default", "-subscribe"]);
    deafens.exec_async(&mut connection).await.unwrap();
    let config = across.config(in_redis(&across.redis));
    across.gateways.push(Gateway::start(config).await.unwrap());
    across.works_at(&client, 1, "u1").await;
    end_behind(&across.redis).await;
    let refused = across.at(&client, 1).send(&call("ended")).await;
    assert_eq!(refused.status, 404, "{refused:?}");
    across.server.finish();
}
