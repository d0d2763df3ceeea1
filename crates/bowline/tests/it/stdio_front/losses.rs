//! Servers that go away and come back.

use std::time::Duration;

use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::kit::gateway::config;
use crate::kit::messages::list;
use crate::kit::wired::{Wired, call_of, initialize};

async fn stage() -> (Tally, Counting, Wired) {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let mut client = Wired::at(&server.url()).await;
    client.begin().await;
    client.ask(&list("tools")).await;
    (tally, server, client)
}

fn bump(key: &str) -> Value {
    call_of(key, "bump", &json!({"key": key}))
}

#[tokio::test]
async fn a_lost_session_is_recovered() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let capabilities = json!({"tools": {"listChanged": true}});
    server.settings(|settings| settings.capabilities = capabilities);
    let mut client = Wired::at(&server.url()).await;
    client.begin().await;
    server.forget_sessions();
    let answer = client.ask(&bump("k")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!((tally.executions("k"), server.initializes()), (1, 2));
    client.hear_of("notifications/tools/list_changed").await;
}

#[tokio::test]
async fn a_request_waits_for_a_server_that_is_away_even_beyond_the_recovery_budget() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    let recovery = &mut config.servers.values_mut().next().unwrap().recovery;
    recovery.budget = Duration::from_millis(300);
    let mut client = Wired::with(config).await;
    client.begin().await;
    server.die().await;
    client.say(&bump("k")).await;
    // The request has failed several times by then.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    server.come_back().unwrap();
    let answer = client.answer_to(&json!("k")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(tally.executions("k"), 1);
}

/// The error would be an event on the stream of the answer, and not a fault.
#[tokio::test]
async fn a_safe_request_whose_stream_broke_waits_beyond_the_recovery_budget() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let recovery = &mut config.servers.values_mut().next().unwrap().recovery;
    recovery.budget = Duration::from_millis(300);
    let mut client = Wired::with(config).await;
    client.say(&initialize("2025-11-25", &json!({}))).await;
    server.next().await.initialized(Some("u1"));
    client.answer_to(&json!("init")).await;
    client.say(&list(1)).await;
    let mut pen = server.next().await.events();
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n");
    client.hear_of("notifications/message").await;
    pen.cut();
    let broken = Instant::now();
    loop {
        let asked = server.next().await;
        if broken.elapsed() < Duration::from_millis(1500) {
            asked.reply(503, &[], "");
            continue;
        }
        match asked.rpc_method().as_str() {
            "initialize" => asked.initialized(Some("u2")),
            "ping" => asked.result(&json!({})),
            "tools/list" => break asked.result(&json!({"tools": []})),
            _ => asked.reply(202, &[], ""),
        }
    }
    let answer = client.answer_to(&json!(1)).await;
    assert_eq!(answer["result"], json!({"tools": []}), "{answer}");
}

#[tokio::test]
async fn initialize_waits_for_a_server_that_is_not_there_yet() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    server.die().await;
    let mut client = Wired::at(&server.url()).await;
    let opening = initialize("2025-11-25", &json!({}));
    client.say(&opening).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.come_back().unwrap();
    let opened = client.answer_to(&opening["id"]).await;
    assert!(opened["result"].is_object(), "{opened}");
}

#[tokio::test]
async fn a_cancel_ends_the_wait() {
    let (tally, server, mut client) = stage().await;
    server.die().await;
    client.say(&bump("k")).await;
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "k"}});
    client.say(&cancel).await;
    server.come_back().unwrap();
    let answer = client.ask(&bump("later")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(tally.executions("k"), 0);
}

/// A server that lost the session and offers less: over HTTP the client would have to initialize again.
#[tokio::test]
async fn a_session_that_ended_is_opened_again() {
    let (tally, server, mut client) = stage().await;
    server.settings(|settings| settings.capabilities = json!({}));
    server.forget_sessions();
    let told = client.ask(&bump("told")).await;
    assert_eq!(told["error"]["code"], -32001, "{told}");
    assert_eq!(tally.executions("told"), 0);
    let answer = client.ask(&bump("again")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(tally.executions("again"), 1);
}

#[tokio::test]
async fn a_second_initialize_replaces_the_session() {
    let (_, server, mut client) = stage().await;
    client.begin().await;
    let answer = client.ask(&bump("k")).await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(server.initializes(), 2);
    client.close();
    client.ended().await;
    assert_eq!(server.deletes(), 2);
}

/// What comes of a call whose server ends the stream after an event id, to be asked for the rest, and answers that
/// request like this.
async fn polled(rest: impl Fn(Asked)) -> Value {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let configured = config.servers.values_mut().next().unwrap();
    configured.call_timeout = Some(Duration::from_secs(2));
    let mut client = Wired::with(config).await;
    client.say(&initialize("2025-11-25", &json!({}))).await;
    server.next().await.initialized(Some("u1"));
    client.answer_to(&json!("init")).await;
    client.say(&bump("k")).await;
    let mut pen = server.next().await.events();
    pen.write("id: e1\nretry: 10\ndata: \n\n");
    drop(pen);
    let id = json!("k");
    let answering = client.answer_to(&id);
    tokio::pin!(answering);
    loop {
        tokio::select! {
            answer = &mut answering => return answer,
            asked = server.next() => match asked.headers.contains_key("last-event-id") {
                true => rest(asked),
                false => asked.reply(405, &[], ""),
            }
        }
    }
}

#[tokio::test]
async fn a_call_whose_rest_cannot_be_had_has_an_unknown_outcome() {
    for status in [404, 200] {
        let html = [("content-type", "text/html")];
        let answer = polled(|asked| asked.reply(status, &html, "<p>no</p>")).await;
        assert_eq!(answer["error"]["code"], -31001, "{status}: {answer}");
    }
}

#[tokio::test]
async fn the_rest_of_an_answer_is_not_asked_for_longer_than_a_call_may_take() {
    let answer = polled(|asked| drop(asked.events())).await;
    assert_eq!(answer["error"]["code"], -31001, "{answer}");
}
