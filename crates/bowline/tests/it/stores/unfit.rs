//! A Redis that is not there at the start, full, demoted or locked: what can be read is read, nothing is
//! promised that is not kept, and the operator is told.

use std::time::Duration;

use bowline::config::{OnUnreachable, Password, Store, StoreKind};
use bowline::{Gateway, StartError};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::json;

use super::away::until_ready_is;
use crate::kit::across::{Across, assert_cannot_know, with_grace};
use crate::kit::client::{Answer, Client, sent};
use crate::kit::gateway::{admin, config, health};
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::stores::{call_back, command, in_redis, raw};

fn on_start(redis: &Redis, on_unreachable_start: OnUnreachable) -> Store {
    let mut store = in_redis(redis);
    if let StoreKind::Redis(redis) = &mut store.kind {
        redis.on_unreachable_start = on_unreachable_start;
    }
    store
}

#[tokio::test]
async fn a_gateway_starts_without_its_redis_and_is_ready_with_it() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.store = on_start(&redis, OnUnreachable::Wait);
    with_grace(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let ready = admin(&gateway, "/ready").await;
    assert_eq!(ready.status, 503);
    let reason = ready.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("since the start"), "{reason}");
    assert_eq!(health(&gateway).await["store"]["status"], "unavailable");
    redis.restart_empty().await.unwrap();
    until_ready_is(&gateway, 200).await;
    Client::open(&gateway, &mut server, "u1").await;
}

#[tokio::test]
async fn a_gateway_that_is_to_give_up_does() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = on_start(&redis, OnUnreachable::Exit);
    let started = Gateway::start(config).await;
    assert!(
        matches!(started, Err(StartError::Store { .. })),
        "{started:?}"
    );
}

/// Opens a session that cannot be kept; the server's own is ended again.
async fn is_not_opened(across: &mut Across, gateway: usize) -> Answer {
    let mut newcomer = Client::new(&across.gateways[gateway]);
    let (refused, ()) = tokio::join!(newcomer.initialize(), async {
        across.server.next().await.initialized(Some("newborn"));
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        asked.reply(204, &[], "");
    });
    assert_cannot_know(&refused);
    refused
}

#[tokio::test]
async fn a_full_redis_is_read_and_takes_no_new_sessions() {
    let log = Log::default();
    let _kept = log.keep();
    let mut across = Across::start_with(3, |config| {
        with_grace(config);
        config.store.grace = Duration::from_millis(100);
    })
    .await;
    let client = across.open().await;
    let other = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.works_at(&client, 1, "u1").await;
    let mut connection = raw(&across.redis).await;
    // Less than Redis itself takes.
    let full = command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    full.exec_async(&mut connection).await.unwrap();
    let refused = is_not_opened(&mut across, 0).await;
    let error = &refused.json()["error"];
    assert_eq!(error["data"]["reason"], "store_refused", "{error}");
    assert!(
        error["message"].as_str().unwrap().contains("no room"),
        "{error}"
    );
    // Far beyond the grace, what is at hand is looked at again, and what is not is read.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for gateway in [0, 1, 2] {
        across.works_at(&client, gateway, "u1").await;
    }
    let gateway = &across.gateways[0];
    let ready = admin(gateway, "/ready").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    assert!(
        ready.json()["degraded"]
            .as_str()
            .unwrap()
            .contains("no room"),
        "{ready:?}"
    );
    let told = health(gateway).await;
    assert_eq!(
        (&told["status"], &told["store"]["status"]),
        (&json!("degraded"), &json!("refusing"))
    );
    // An end makes room.
    let (ended, ()) = tokio::join!(other.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    assert_eq!(other.send(&call(1)).await.status, 404);
    assert!(
        log.contains("OOM") && log.contains("maxmemory"),
        "the reason and what to do"
    );
    assert!(!log.contains("does not answer"), "it does answer");

    let room = command(&["CONFIG", "SET", "maxmemory", "0"]);
    room.exec_async(&mut connection).await.unwrap();
    let waiting = async {
        while health(&across.gateways[0]).await["store"]["status"] != "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok());
    Client::open(&across.gateways[0], &mut across.server, "u3").await;
}

#[tokio::test]
async fn a_redis_that_became_a_replica_is_read_and_its_sessions_do_not_end() {
    let mut across = Across::start_with(2, with_grace).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    // Of a primary that is gone; its own data it shows all the same.
    let demoted = command(&["REPLICAOF", "127.0.0.1", "1"]);
    demoted.exec_async(&mut connection).await.unwrap();
    let refused = is_not_opened(&mut across, 0).await;
    assert!(refused.text.contains("accepts no writes"), "{refused:?}");
    let told = health(&across.gateways[0]).await;
    assert_eq!(told["store"]["status"], "refusing", "{told}");
    for gateway in [0, 1] {
        across.works_at(&client, gateway, "u1").await;
    }
    // Nobody can promise to end it everywhere.
    assert_cannot_know(&sent(client.delete()).await);
    call_back(&across.redis).await;
    across.works_at(&client, 1, "u1").await;
}

#[tokio::test]
async fn a_wrong_password_is_told_with_what_to_do_and_not_shown() {
    let log = Log::default();
    let _kept = log.keep();
    let redis = Redis::start_with(&["--requirepass", "right-password"])
        .await
        .unwrap();
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = in_redis(&redis);
    if let StoreKind::Redis(redis) = &mut config.store.kind {
        redis.password = Some(Password::Written("wrong-password".to_owned()));
    }
    with_grace(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let ready = admin(&gateway, "/ready").await;
    assert_eq!(ready.status, 503);
    assert!(
        ready.text.contains("does not accept the credentials"),
        "{ready:?}"
    );
    assert!(log.contains("correct `user` and `password` in `[store]`"));
    assert!(!log.contains("wrong-password") && !ready.text.contains("wrong-password"));
    // It is let in as soon as Redis knows it.
    let client = redis::Client::open(redis.url().replace("//", "//:right-password@")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let known = command(&["CONFIG", "SET", "requirepass", "wrong-password"]);
    known.exec_async(&mut connection).await.unwrap();
    let waiting = async {
        while health(&gateway).await["store"]["status"] != "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok());
}
