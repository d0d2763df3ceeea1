//! A process lives in one gateway, and its session in the store: what a restart and other gateways make of it.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::redis::Redis;
use serde_json::json;

use crate::kit::across::assert_cannot_know;
use crate::kit::client::Client;
use crate::kit::programs::{Play, Tally, command, config_of, text_of, until_gone};
use crate::kit::stores::{command as redis_command, in_file, in_redis, raw};

#[tokio::test]
async fn a_session_outlives_its_gateway_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let play = Play::open_with(|config| config.store = in_file(directory.path())).await;
    let pid = play.pid().await;
    let config = |tally: &Tally| {
        let mut config = config_of(command(&tally.path()));
        config.store = in_file(directory.path());
        config
    };
    let Play {
        gateway,
        client,
        tally,
    } = play;
    gateway.stop().await;
    until_gone(pid).await;
    let gateway = Gateway::start(config(&tally)).await.unwrap();
    let client = client.moved_to(&gateway);
    let answer = client.call(1, "bump", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((tally.count("bump k"), tally.starts()), (1, 2));
    assert_eq!(tally.count("heard notifications/initialized"), 2);
}

#[tokio::test]
async fn a_session_with_a_process_is_not_dropped_to_make_room() {
    let directory = tempfile::tempdir().unwrap();
    let play = Play::open_with(|config| {
        config.store = in_file(directory.path());
        config.store.cache = 1;
    })
    .await;
    let mut others = Vec::new();
    for _ in 0..20 {
        let mut client = Client::new(&play.gateway);
        assert_eq!(client.begin().await.status, 200);
        others.push(client);
    }
    for client in others.iter().chain([&play.client]) {
        let answer = client.call(1, "echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
    }
    assert_eq!(play.tally.starts(), 21);
}

/// Two gateways on one Redis, before a server that is a program; a session at the first.
async fn two(redis: &Redis) -> (Play, Gateway) {
    let store = in_redis(redis);
    let play = Play::open_with(|config: &mut Config| config.store = store.clone()).await;
    let mut config = config_of(command(&play.tally.path()));
    config.store = store;
    let second = Gateway::start(config).await.unwrap();
    (play, second)
}

#[tokio::test]
async fn at_another_gateway_a_session_waits_for_its_owner_to_be_gone() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let (play, second) = two(&redis).await;
    let elsewhere = play.client.moved_to(&second);
    let answer = elsewhere.call(1, "bump", &json!({"key": "early"})).await;
    assert_cannot_know(&answer);
    assert_eq!(
        answer.json()["error"]["data"]["reason"],
        "session_elsewhere"
    );
    let get = elsewhere.get().send().await.unwrap();
    assert_eq!(get.status(), 503);
    // The owner is not disturbed.
    assert_eq!(
        text_of(&play.call("echo", &json!({"text": "x"})).await),
        "x"
    );
    assert_eq!(
        (play.tally.starts(), play.tally.count("bump early")),
        (1, 0)
    );
    // A stop says so; the other recovers the session from then on, at once.
    let pid = play.pid().await;
    let Play { gateway, tally, .. } = play;
    gateway.stop().await;
    until_gone(pid).await;
    let answer = elsewhere.call(2, "bump", &json!({"key": "late"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((tally.count("bump late"), tally.starts()), (1, 2));
}

#[tokio::test]
async fn an_owner_that_was_given_up_ends_its_process() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let (play, second) = two(&redis).await;
    let pid = play.pid().await;
    let elsewhere = play.client.moved_to(&second);
    // As if the owner had not been heard of for long: its presence is gone again and again.
    let mut connection = raw(&redis).await;
    let recovered = async {
        loop {
            let keys: Vec<String> = redis_command(&["KEYS", "test:*gateways*"])
                .query_async(&mut connection)
                .await
                .unwrap();
            for key in keys {
                let delete = redis_command(&["DEL", &key]);
                delete.exec_async(&mut connection).await.unwrap();
            }
            let answer = elsewhere.call(1, "bump", &json!({"key": "k"})).await;
            if answer.status == 200 {
                break;
            }
            assert_cannot_know(&answer);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let limit = std::time::Duration::from_secs(30);
    tokio::time::timeout(limit, recovered).await.unwrap();
    until_gone(pid).await;
    assert_eq!((play.tally.count("bump k"), play.tally.starts()), (1, 2));
    // Whether the first has seen the other since then or not: nothing runs twice.
    let answer = play.call("bump", &json!({"key": "old"})).await;
    let ran = usize::from(answer.status == 200);
    assert_eq!(play.tally.count("bump old"), ran, "{answer:?}");
}
