//! Gateways on one store that do not fit together, or a Redis that does not suit them: the operator is told.

use std::time::Duration;

use bowline::config::Config;
use bowline::{Gateway, SealKeys};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::PATIENCE;
use serde_json::{Value, json};

use crate::kit::across::Across;
use crate::kit::gateway::{config, health, with_admin};
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::stores::{command, in_redis, raw};
use crate::kit::wait::until;

/// Waits until the gateway says this of the others on its store.
pub(super) async fn until_others(gateway: &Gateway, wanted: &Value) {
    let waiting = async {
        loop {
            let told = health(gateway).await["store"]["others"].clone();
            let told: Vec<_> = told.as_array().unwrap().iter().collect();
            if told.len() == 1 && told[0]["differs_in"] == *wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never {wanted}");
}

async fn beside(change: impl Fn(&mut Config), wanted: Value) {
    let redis = Redis::start().await.unwrap();
    let mut gateways = Vec::new();
    for differs in [false, true] {
        let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
        config.store = in_redis(&redis);
        with_admin(&mut config);
        if differs {
            change(&mut config);
        }
        gateways.push(Gateway::start(config).await.unwrap());
    }
    for gateway in &gateways {
        until_others(gateway, &wanted).await;
    }
    // One that stops is no longer told of.
    gateways.pop().unwrap().stop().await;
    let waiting = async {
        while health(&gateways[0]).await["store"]["others"] != json!([]) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "one that has left is still told of");
}

fn other_keys(config: &mut Config) {
    let keys = SealKeys::parse(&format!("B{}", "A".repeat(42))).unwrap();
    config.store.seal_keys = Some(keys);
}

fn other_servers(config: &mut Config) {
    let more = crate::kit::gateway::config(&[("t", "http://127.0.0.1:9/mcp")]);
    config.servers.extend(more.servers);
}

#[tokio::test]
async fn gateways_that_agree_differ_in_nothing() {
    beside(|_| {}, json!([])).await;
}

#[tokio::test]
async fn a_gateway_with_other_keys_is_told_of_on_both() {
    let log = Log::default();
    let _kept = log.keep();
    beside(other_keys, json!(["seal keys"])).await;
    assert!(log.contains("another gateway on this store has other seal keys"));
}

#[tokio::test]
async fn a_gateway_with_other_servers_is_told_of_on_both() {
    let log = Log::default();
    let _kept = log.keep();
    beside(other_servers, json!(["servers"])).await;
    assert!(log.contains("another gateway on this store has other servers"));
}

#[tokio::test]
async fn one_that_cannot_be_read_hides_no_other() {
    let log = Log::default();
    let _kept = log.keep();
    let redis = Redis::start().await.unwrap();
    let mut connection = raw(&redis).await;
    let said = command(&["HSET", "test:gateways", "strange", "99999999999999 {}"]);
    said.exec_async(&mut connection).await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
        config.store = in_redis(&redis);
        with_admin(&mut config);
        gateways.push(Gateway::start(config).await.unwrap());
    }
    for gateway in &gateways {
        until_others(gateway, &json!([])).await;
        assert_eq!(health(gateway).await["store"]["unreadable_others"], 1);
    }
    assert!(log.contains("cannot read the presence of other gateways"));
}

#[tokio::test]
async fn a_redis_that_may_evict_is_warned_of_also_when_it_comes_late() {
    for comes_late in [false, true] {
        let log = Log::default();
        let _kept = log.keep();
        let mut redis = Redis::start_with(&["--maxmemory-policy", "allkeys-lru"])
            .await
            .unwrap();
        if comes_late {
            redis.kill().await.unwrap();
        }
        let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
        config.store = in_redis(&redis);
        let _gateway = Gateway::start(config).await.unwrap();
        if comes_late {
            redis.restart_empty().await.unwrap();
        }
        until("a warning", || log.contains("allkeys-lru")).await;
    }
}

#[tokio::test]
async fn a_session_that_is_sealed_with_other_keys_is_not_denied() {
    let mut across = Across::start(1).await;
    let client = across.open().await;
    let mut config = across.config(in_redis(&across.redis));
    other_keys(&mut config);
    across.gateways.push(Gateway::start(config).await.unwrap());
    let elsewhere = across.at(&client, 1);
    // It is there, so this is no 404.
    assert_eq!(elsewhere.send(&call(1)).await.status, 503);
    across.works_at(&client, 0, "u1").await;
    across.server.finish();
}
