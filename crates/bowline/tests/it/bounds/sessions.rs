//! `[limits] sessions` holds wherever sessions are kept, at hand or not.

use bowline::Gateway;
use bowline::config::{Config, Store};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::redis::Redis;

use crate::kit::client::Client;
use crate::kit::gateway::{admin, config, with_admin};
use crate::kit::stores::{in_file, in_redis};
use crate::kit::wait::until_so;

const LIMIT: usize = 40;

fn limited(server: &Counting, store: Store) -> Config {
    let mut config = config(&[("s", &server.url())]);
    with_admin(&mut config);
    config.limits.sessions = LIMIT;
    config.store = store;
    // Fewer are at hand than there are.
    config.store.cache = 16;
    config
}

/// Opens so many; how many were refused.
async fn open(gateway: &Gateway, count: usize) -> usize {
    let mut refused = 0;
    for _ in 0..count {
        let answer = Client::new(gateway).begin().await;
        match u16::from(answer.status) {
            200 => {}
            503 => {
                assert_eq!(answer.messages()[0]["error"]["code"], -31005, "{answer:?}");
                refused += 1;
            }
            other => panic!("{other}"),
        }
    }
    refused
}

#[tokio::test]
async fn in_a_file() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let config = || limited(&server, in_file(directory.path()));
    let gateway = Gateway::start(config()).await.unwrap();
    let mut first = Client::new(&gateway);
    assert_eq!(first.begin().await.status, 200);
    assert_eq!(open(&gateway, 199).await, 160);
    // What ends makes room for another one.
    assert_eq!(first.end().await.status, 204);
    assert_eq!(open(&gateway, 2).await, 1);
    gateway.stop().await;
    let gateway = Gateway::start(config()).await.unwrap();
    assert_eq!(open(&gateway, 2).await, 2);
}

#[tokio::test]
async fn in_a_redis_for_all_gateways_together() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let redis = Redis::start().await.unwrap();
    let config = || limited(&server, in_redis(&redis));
    let one = Gateway::start(config()).await.unwrap();
    // What opens while a gateway counts may count twice, until the next time.
    until_so("it has counted", async || {
        let counted = r#"bowline_store_operations_total{operation="count",outcome="ok"}"#;
        admin(&one, "/metrics").await.text.contains(counted)
    })
    .await;
    let mut first = Client::new(&one);
    assert_eq!(first.begin().await.status, 200);
    assert_eq!(open(&one, 60).await, 21);
    // One that comes later, or looks again, counts the others' as well.
    let other = Gateway::start(config()).await.unwrap();
    until_so("the other counts them", async || open(&other, 1).await == 1).await;
    assert_eq!(first.end().await.status, 204);
    assert_eq!(open(&one, 2).await, 1);
}
