//! Servers that go away and come back, and sessions that end.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use serde_json::{Value, json};

use crate::kit::gateway::{config, gateway};
use crate::kit::log::Log;
use crate::kit::messages::list;
use crate::kit::sse::{REVISION, Sse};
use crate::kit::wait::until;
use crate::kit::wired::{call_of, initialize};

async fn stage() -> (Tally, Counting, Gateway, Sse) {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let gateway = gateway(&server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    client.ask(&list("tools")).await;
    (tally, server, gateway, client)
}

fn bump(key: &str) -> Value {
    call_of(key, "bump", &json!({"key": key}))
}

#[tokio::test]
async fn a_lost_session_is_recovered_on_the_same_stream() {
    let (tally, server, _gateway, mut client) = stage().await;
    server.forget_sessions();
    let answer = client.ask(&bump("k")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!((tally.executions("k"), server.initializes()), (1, 2));
}

#[tokio::test]
async fn a_server_that_restarts_during_a_call_is_told_only_where_it_matters() {
    let (tally, server, _gateway, mut client) = stage().await;
    let slowly = |key: &str, ms: u64| json!({"key": key, "steps": 1, "ms": ms});
    let (lost, kept) = (slowly("unsafe", 60_000), slowly("safe", 500));
    client.say(&call_of("unsafe", "slow", &lost)).await;
    client.say(&call_of("safe", "stream_read", &kept)).await;
    until("both run", || {
        tally.executions("unsafe") == 1 && tally.executions("safe") == 1
    })
    .await;
    server.die().await;
    server.come_back().unwrap();
    let answer = client.answer_to(&json!("unsafe")).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
    let answer = client.answer_to(&json!("safe")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(
        (tally.executions("unsafe"), tally.executions("safe")),
        (1, 2)
    );
}

#[tokio::test]
async fn a_request_waits_for_a_server_that_is_away() {
    let log = Log::default();
    let _kept = log.keep();
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    crate::kit::gateway::only(&mut config).recovery.budget = Duration::from_millis(300);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    server.die().await;
    client.say(&bump("k")).await;
    until("the request has failed more than once", || {
        log.lines_with("session not recovered").len() > 1
    })
    .await;
    server.come_back().unwrap();
    let answer = client.answer_to(&json!("k")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(tally.executions("k"), 1);
}

/// A server that lost the session and offers less: the client is told, and has to open another stream.
#[tokio::test]
async fn a_session_that_ended_ends_the_stream_after_its_last_answer() {
    let (tally, server, gateway, mut client) = stage().await;
    server.settings(|settings| settings.capabilities = json!({}));
    server.forget_sessions();
    let told = client.ask(&bump("told")).await;
    assert_eq!(told["error"]["code"], -32001, "{told}");
    assert_eq!(tally.executions("told"), 0);
    let url = client.endpoint.to_string();
    client.ended().await;
    let late = crate::kit::client::Client::at(url)
        .send(&bump("late"))
        .await;
    assert_eq!(late.status, 404);
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    assert!(client.ask(&bump("again")).await["result"].is_object());
}

#[tokio::test]
async fn a_session_that_is_too_old_ends_its_stream() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    config.limits.session_max_age = Some(Duration::from_millis(200));
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    client.ended().await;
    until("it ends at the server", || server.deletes() == 1).await;
}

#[tokio::test]
async fn an_open_stream_keeps_its_session_beyond_the_idle_time() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    config.limits.session_idle = Duration::from_millis(200);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    // Time is what is tested: several times the idle time, in which nothing happens.
    tokio::time::sleep(Duration::from_millis(800)).await;
    assert!(client.ask(&bump("k")).await["result"].is_object());
    assert_eq!(server.initializes(), 1);
}

#[tokio::test]
async fn initialize_waits_for_a_server_that_is_not_there_yet() {
    let log = Log::default();
    let _kept = log.keep();
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    server.die().await;
    let gateway = gateway(&server.url()).await;
    let mut client = Sse::open(&gateway).await;
    client.say(&initialize(REVISION, &json!({}))).await;
    until("it has failed", || log.contains("no session yet")).await;
    server.come_back().unwrap();
    let opened = client.answer_to(&json!("init")).await;
    assert!(opened["result"].is_object(), "{opened}");
}
