//! Changing the keys that seal what is stored: what is said on the way, and that no session is lost.

use bowline::config::Config;
use bowline::{Gateway, SealKeys};
use bowline_testbed::redis::Redis;
use serde_json::json;

use crate::client::config;
use crate::kept::in_redis;
use crate::log::Log;
use crate::shared_store::until_others;

fn old() -> String {
    "A".repeat(43)
}

fn new() -> String {
    format!("B{}", "A".repeat(42))
}

fn with_keys(config: Config, keys: &[String]) -> Config {
    let mut config = config;
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.store.seal_keys = Some(SealKeys::parse(&keys.join(",")).unwrap());
    config
}

async fn gateway(redis: &Redis, keys: &[String]) -> Gateway {
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = in_redis(redis);
    Gateway::start(with_keys(config, keys)).await.unwrap()
}

#[tokio::test]
async fn keys_are_only_told_of_where_one_cannot_open_what_the_other_seals() {
    let redis = Redis::start().await.unwrap();
    let (old, new) = (&old(), &new());
    let both = |first: &String, second: &String| vec![first.clone(), second.clone()];
    for (a, b, differ) in [
        // As the guide has it: behind, first, alone.
        (vec![old.clone()], both(old, new), false),
        (both(old, new), both(new, old), false),
        (both(new, old), vec![new.clone()], false),
        // The new one first at once: the other gateway cannot open what is sealed with it.
        (vec![old.clone()], both(new, old), true),
        // The old one taken out too early.
        (both(old, new), vec![new.clone()], true),
    ] {
        let log = Log::default();
        let _kept = log.keep();
        let (one, two) = (gateway(&redis, &a).await, gateway(&redis, &b).await);
        let told = if differ {
            json!(["seal keys"])
        } else {
            json!([])
        };
        until_others(&one, &told).await;
        until_others(&two, &told).await;
        assert_eq!(log.contains("seal keys"), differ, "{a:?} {b:?}");
        one.stop().await;
        if differ {
            // What was wrong is put right by a restart, and no longer told.
            let one = gateway(&redis, &b).await;
            until_others(&two, &json!([])).await;
            one.stop().await;
        }
        two.stop().await;
    }
}
