//! What a client cannot do.

use bowline_testbed::counting::{Counting, Tally};
use serde_json::{Value, json};

use super::conversations::scripted;
use crate::kit::gateway::config;
use crate::kit::messages::{call, list};
use crate::kit::wired::{Wired, call_of};

#[tokio::test]
async fn what_is_no_message_gets_an_error_and_changes_nothing() {
    let (mut server, mut client, _listening) = scripted("2025-11-25").await;
    for (line, code) in [
        ("{\"jsonrpc\":", -32700),
        ("\u{fffd}\u{0}", -32700),
        ("17", -32600),
        ("{}", -32600),
    ] {
        client.write(format!("{line}\n").as_bytes()).await;
        let refused = client.read().await.unwrap();
        assert_eq!(
            (refused["error"]["code"].clone(), refused["id"].clone()),
            (json!(code), Value::Null),
            "{line}: {refused}"
        );
    }
    client.write(b"\xff\xfe\n").await;
    assert_eq!(client.read().await.unwrap()["error"]["code"], -32700);
    client.say(&call(1)).await;
    server.next().await.result(&json!({}));
    client.answer_to(&json!(1)).await;
}

#[tokio::test]
async fn a_line_that_is_too_long_is_left_out() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    config.limits.body_bytes = 100 * 1024;
    let mut client = Wired::with(config).await;
    client.begin().await;
    let long = call_of("long", "bump", &json!({"key": "x".repeat(1024 * 1024)}));
    client.say(&long).await;
    let refused = client.answer_to(&json!("long")).await;
    assert_eq!(refused["error"]["data"]["reason"], "body_too_large");
    let answer = client
        .ask(&call_of("short", "bump", &json!({"key": "k"})))
        .await;
    assert!(answer["result"].is_object(), "{answer}");
    assert_eq!(tally.all().len(), 1);
}

#[tokio::test]
async fn nothing_is_served_before_initialize() {
    let mut client = Wired::at("http://127.0.0.1:9/mcp").await;
    let probe = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}});
    for request in [probe, list(1)] {
        let refused = client.ask(&request).await;
        let error = &refused["error"];
        assert_eq!(error["code"], -32600, "{refused}");
        assert_eq!(error["data"]["reason"], "not_initialized", "{refused}");
    }
    client.say(&json!([list(1)])).await;
    let refused = client.answer_to(&Value::Null).await;
    assert_eq!(refused["error"]["data"]["reason"], "not_initialized");
}

#[tokio::test]
async fn requests_under_way_are_limited_and_answers_still_get_through() {
    let (mut server, _client, _listening) = scripted("2025-11-25").await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 4;
    let mut client = Wired::with(config).await;
    client
        .say(&crate::kit::wired::initialize("2025-11-25", &json!({})))
        .await;
    server.next().await.initialized(Some("u2"));
    client.answer_to(&json!("init")).await;
    for id in 0..5 {
        client.say(&call(id)).await;
    }
    let refused = client.answer_to(&json!(4)).await;
    assert_eq!(refused["error"]["code"], -31005, "{refused}");
    for _ in 0..4 {
        server.next().await.result(&json!({}));
    }
    for id in 0..4 {
        assert!(client.answer_to(&json!(id)).await["result"].is_object());
    }
    client.say(&call(6)).await;
    server.next().await.result(&json!({}));
    client.answer_to(&json!(6)).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_blocks_only_itself() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.settings(|settings| settings.all_tools = true);
    let mut client = Wired::at(&server.url()).await;
    client.begin().await;
    // Far more than fits anywhere on the way.
    for id in 0..40 {
        let key = json!({"key": id.to_string(), "bytes": 1024 * 1024});
        client.say(&call_of(id, "large", &key)).await;
    }
    let mut other = Wired::at(&server.url()).await;
    other.begin().await;
    let answer = other.ask(&call_of("o", "bump", &json!({"key": "o"}))).await;
    assert!(answer["result"].is_object(), "{answer}");
    for id in 0..40 {
        assert!(client.answer_to(&json!(id)).await["result"].is_object());
    }
}
