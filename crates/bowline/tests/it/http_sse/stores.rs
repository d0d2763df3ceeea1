//! A stream lives in one gateway, and its session in the store: what a restart and other gateways make of it.

use bowline::Gateway;
use bowline_testbed::redis::Redis;
use serde_json::json;

use crate::kit::across::assert_cannot_know;
use crate::kit::gateway::config;
use crate::kit::programs::text_of;
use crate::kit::sse_server::{SsePlay, reason};
use crate::kit::stores::{in_file, in_redis};
use crate::kit::wait::{until, until_so};

#[tokio::test]
async fn a_session_outlives_its_gateway_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let play = SsePlay::open_with(|config| config.store = in_file(directory.path())).await;
    let SsePlay {
        gateway,
        client,
        server,
        tally,
    } = play;
    gateway.stop().await;
    until("the stream is closed", || server.sessions() == 0).await;
    let mut config = config(&[("s", &server.url())]);
    config.store = in_file(directory.path());
    let gateway = Gateway::start(config).await.unwrap();
    let client = client.moved_to(&gateway);
    let answer = client.call(1, "bump", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((tally.count("bump k"), tally.starts()), (1, 2));
    assert_eq!(tally.count("heard notifications/initialized"), 2);
    assert_eq!(server.complaints(), [] as [&str; 0]);
}

#[tokio::test]
async fn at_another_gateway_a_session_waits_for_its_owner_to_be_gone() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let store = in_redis(&redis);
    let play = SsePlay::open_with(|config| config.store = store.clone()).await;
    let mut config = config(&[("s", &play.server.url())]);
    config.store = store;
    let second = Gateway::start(config).await.unwrap();
    let elsewhere = play.client.moved_to(&second);
    let answer = elsewhere.call(1, "bump", &json!({"key": "early"})).await;
    assert_cannot_know(&answer);
    assert_eq!(reason(&answer).0, "session_elsewhere");
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    let SsePlay {
        gateway,
        tally,
        server,
        ..
    } = play;
    gateway.stop().await;
    until_so("the owner is gone", async || {
        let answer = elsewhere.call(2, "bump", &json!({"key": "late"})).await;
        answer.status == 200
    })
    .await;
    assert_eq!(tally.count("bump early"), 0);
    assert_eq!((tally.count("bump late"), tally.starts()), (1, 2));
    assert_eq!(server.sessions(), 1);
}
