//! Changing the keys that seal what is stored: what is said on the way, and that no session is lost.

use bowline::config::Config;
use bowline::{Gateway, SealKeys};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::initialize_result;
use serde_json::{Value, json};

use super::fleet::until_others;
use crate::kit::across::Across;
use crate::kit::client::Client;
use crate::kit::gateway::{config, with_admin};
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::stores::{command, in_redis, keys, raw};
use crate::kit::wait::until_so;

fn old() -> String {
    "A".repeat(43)
}

fn new() -> String {
    format!("B{}", "A".repeat(42))
}

/// With these keys, newest first.
fn with_keys(mut config: Config, keys: &str) -> Config {
    with_admin(&mut config);
    config.store.seal_keys = Some(SealKeys::parse(keys).unwrap());
    config
}

async fn gateway(redis: &Redis, keys: &str) -> Gateway {
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = in_redis(redis);
    Gateway::start(with_keys(config, keys)).await.unwrap()
}

/// What two gateways with these keys say of each other.
async fn told(a: &str, b: &str, wanted: Value) {
    let redis = Redis::start().await.unwrap();
    let (one, two) = (gateway(&redis, a).await, gateway(&redis, b).await);
    until_others(&one, &wanted).await;
    until_others(&two, &wanted).await;
    one.stop().await;
    // What was wrong is put right by a restart, and then no longer told.
    let _one = gateway(&redis, b).await;
    until_others(&two, &json!([])).await;
}

#[tokio::test]
async fn keys_are_only_told_of_where_one_cannot_open_what_the_other_seals() {
    let log = Log::default();
    let _kept = log.keep();
    let (old, new) = (&*old(), &*new());
    let (behind, first) = (&*format!("{old},{new}"), &*format!("{new},{old}"));
    // As the guide has it: behind, first, alone.
    tokio::join!(
        told(old, behind, json!([])),
        told(behind, first, json!([])),
        told(first, new, json!([])),
    );
    assert!(!log.contains("seal keys"));
    let differ = json!(["seal keys"]);
    tokio::join!(
        // First at once: the other gateway cannot open what is sealed with it.
        told(old, first, differ.clone()),
        // The old one taken out too early.
        told(behind, new, differ.clone()),
    );
    // Each gateway once.
    assert_eq!(log.lines_with("seal keys").len(), 4);
}

/// The ids of the keys that sealed what is in Redis: records and jars.
async fn sealed_with(redis: &Redis, key: &str) -> Vec<Vec<u8>> {
    let mut connection = raw(redis).await;
    let fields = command(&["HMGET", key, "r", "j"]);
    let sealed: Vec<Vec<u8>> = fields.query_async(&mut connection).await.unwrap();
    sealed.iter().map(|value| value[1..9].to_vec()).collect()
}

#[tokio::test]
async fn a_session_that_is_used_is_sealed_anew_and_the_old_key_can_go() {
    let mut across = Across::start(0).await;
    let start = async |across: &Across, keys: &str| {
        let config = across.config(in_redis(&across.redis));
        Gateway::start(with_keys(config, keys)).await.unwrap()
    };
    let (old, new) = (old(), new());
    let first = start(&across, &old).await;
    let mut client = Client::new(&first);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let headers = [("mcp-session-id", "u1"), ("set-cookie", "SRV=r1; path=/")];
        let asked = across.server.next().await;
        asked.result_with(&headers, &initialize_result());
    });
    assert_eq!(opened.status, 200);
    let key = keys(&mut raw(&across.redis).await).await.remove(0);
    let before = sealed_with(&across.redis, &key).await;
    let unused = Client::open(&first, &mut across.server, "u2").await;
    first.stop().await;

    let both = format!("{new},{old}");
    for _ in 0..2 {
        let gateway = start(&across, &both).await;
        across.gateways.push(gateway);
    }
    across.works_at(&client, 0, "u1").await;
    until_so("sealed anew", async || {
        let now = sealed_with(&across.redis, &key).await;
        now.iter().zip(&before).all(|(now, before)| now != before)
    })
    .await;
    for gateway in [1, 0] {
        across.works_at(&client, gateway, "u1").await;
    }

    let last = start(&across, &new).await;
    across.gateways.push(last);
    let at_last = across.at(&client, 2);
    let message = call(1);
    let answer = at_last.send_to(&mut across.server, &message, |asked| {
        assert_eq!(asked.header("mcp-session-id"), "u1");
        assert_eq!(asked.header("cookie"), "SRV=r1");
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.status, 200);
    // What nobody used is as it was, and is not denied.
    let unused = across.at(&unused, 2);
    assert_eq!(unused.send(&call(1)).await.status, 503);
    across.works_at(&unused, 0, "u2").await;
}
