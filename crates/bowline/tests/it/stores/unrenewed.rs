//! A gateway whose presence the store does not renew: a process lives on for as long as nobody else can take its
//! session over, and there is never a second one.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::redis::{Fitness, Redis};
use serde_json::json;

use super::away::until_ready_is;
use crate::kit::across::{assert_cannot_know, with_grace};
use crate::kit::client::Client;
use crate::kit::gateway::{health, only};
use crate::kit::programs::{Play, command, config_of, text_of};
use crate::kit::stores::{command as redis_command, in_redis, raw};
use crate::kit::wait::until_so;

/// Longer than a presence holds that is not renewed.
const HOLDS: Duration = Duration::from_secs(13);
const LIMIT: Duration = Duration::from_secs(60);

/// A gateway on this Redis, before a server that is a program, and a client of it.
async fn opened(redis: &Redis) -> Play {
    Play::open_with(|config| on(config, redis)).await
}

fn on(config: &mut Config, redis: &Redis) {
    config.store = in_redis(redis);
    with_grace(config);
    // What does not go on does not go on for another reason.
    config.store.grace = LIMIT;
    only(config).recovery.budget = Duration::from_secs(2);
}

/// Waits by the clock of Redis.
async fn until_held_for_long(redis: &Redis) {
    let mut connection = raw(redis).await;
    let mut now = async || {
        let time: (u64, u64) = redis_command(&["TIME"])
            .query_async(&mut connection)
            .await
            .unwrap();
        Duration::new(time.0, 0) + Duration::from_micros(time.1)
    };
    let began = now().await;
    while now().await < began + HOLDS {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Calls until the session works; the process that serves it.
async fn served(client: &Client) -> u32 {
    let serving = async {
        loop {
            let answer = client.call("p", "peek", &json!({"key": "pid"})).await;
            if answer.status == 200 {
                return text_of(&answer).parse().unwrap();
            }
            assert_cannot_know(&answer);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LIMIT / 4, serving)
        .await
        .expect("it does not work any more")
}

async fn goes_on(fitness: Fitness) {
    let redis = Redis::start().await.unwrap();
    let play = opened(&redis).await;
    let pid = play.pid().await;
    redis.become_fit(fitness).await.unwrap();
    until_held_for_long(&redis).await;
    assert_eq!(served(&play.client).await, pid);
    // Another one that comes now finds out whose the session is, and does not take it over; not when Redis takes
    // writes again, either.
    let mut config = config_of(command(&play.tally.path()));
    on(&mut config, &redis);
    let second = Gateway::start(config).await.unwrap();
    let elsewhere = play.client.moved_to(&second);
    let is_elsewhere = async || {
        let answer = elsewhere.call(1, "bump", &json!({"key": "taken"})).await;
        assert_cannot_know(&answer);
    };
    is_elsewhere().await;
    assert_eq!(served(&play.client).await, pid);
    redis.become_fit(Fitness::Fit).await.unwrap();
    let me = health(&play.gateway).await["store"]["gateway"].clone();
    until_so("the second sees the first", async || {
        is_elsewhere().await;
        health(&second).await["store"]["others"][0]["gateway"] == me
    })
    .await;
    is_elsewhere().await;
    assert_eq!(served(&play.client).await, pid);
    assert_eq!(
        (play.tally.starts(), play.tally.count("bump taken")),
        (1, 0)
    );
}

#[tokio::test]
async fn a_process_goes_on_while_its_redis_is_full() {
    goes_on(Fitness::Full).await;
}

#[tokio::test]
async fn a_process_goes_on_while_its_redis_is_a_replica() {
    goes_on(Fitness::ReadOnly).await;
}

/// Nobody can tell whether the others are cut off, too.
#[tokio::test]
async fn a_process_waits_while_its_redis_is_away_for_long() {
    let redis = Redis::start().await.unwrap();
    let play = opened(&redis).await;
    let pid = play.pid().await;
    redis.pause().await.unwrap();
    let waits = async {
        let mut ran = 0;
        loop {
            let answer = play.call("bump", &json!({"key": "away"})).await;
            match answer.status.as_u16() {
                200 => ran += 1,
                _ => break assert_cannot_know(&answer),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(play.tally.count("bump away"), ran);
    };
    tokio::time::timeout(LIMIT, waits).await.unwrap();
    redis.resume().await.unwrap();
    until_ready_is(&play.gateway, 200).await;
    assert_eq!(served(&play.client).await, pid);
    assert_eq!(play.tally.starts(), 1);
}
