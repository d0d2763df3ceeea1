//! A server's restart is not the client's problem: the session is opened again, once, and what the client had
//! is restored.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::{Scripted, initialize_result};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::client::{Client, sent};
use crate::kit::events::Events;
use crate::kit::gateway::{config, gateway, with_admin};
use crate::kit::log::Log;
use crate::kit::messages::{call, list};
use crate::kit::opened::{forgot, opened_ready};

/// Answers the gateway's own `initialize` with a new session, and its `initialized`.
pub(super) async fn reopen(server: &mut Scripted, id: &str) {
    let asked = server.next().await;
    assert_eq!(
        (asked.rpc_method().as_str(), asked.header("mcp-session-id")),
        ("initialize", "")
    );
    assert_eq!(asked.json()["params"]["clientInfo"]["name"], "test");
    assert_eq!(asked.json()["params"]["protocolVersion"], "2025-11-25");
    asked.initialized(Some(id));
    let asked = server.next().await;
    assert_eq!(
        (asked.rpc_method().as_str(), asked.header("mcp-session-id")),
        ("notifications/initialized", id)
    );
    asked.reply(202, &[], "");
}

#[tokio::test]
async fn a_forgotten_session_is_opened_again_and_the_call_goes_once_more() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        reopen(&mut server, "u2").await;
        let replayed = server.next().await;
        assert_eq!(
            (replayed.json(), replayed.header("mcp-session-id")),
            (call(7), "u2")
        );
        replayed.result(&json!({"ok": true}));
    });
    assert_eq!(
        (answer.status.as_u16(), answer.json()["result"].clone()),
        (200, json!({"ok": true}))
    );
    assert!(
        !answer.headers.contains_key("mcp-session-id"),
        "the new id is not shown"
    );
    server.finish();
}

#[tokio::test]
async fn losses_that_are_not_said_by_404() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let said = r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        server
            .next()
            .await
            .reply(400, &[("content-type", "application/json")], said);
        let ping = server.next().await;
        assert_eq!(ping.rpc_method(), "ping");
        ping.reply(400, &[("content-type", "text/plain")], "no such session");
        reopen(&mut server, "u2").await;
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_requests_on_a_dead_session_open_it_once() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let mut calling = JoinSet::new();
    for id in 0..100 {
        let client = client.clone();
        calling.spawn(async move { client.send(&call(id)).await });
    }
    let mut opened = 0;
    let mut answered = 0;
    while answered < 100 {
        let asked = server.next().await;
        match (asked.rpc_method().as_str(), asked.header("mcp-session-id")) {
            ("initialize", _) => {
                opened += 1;
                asked.initialized(Some("u2"));
            }
            ("notifications/initialized", "u2") => asked.reply(202, &[], ""),
            ("tools/call", "u1") => forgot(asked),
            ("tools/call", "u2") => {
                answered += 1;
                asked.result(&json!({}));
            }
            other => panic!("{other:?}"),
        }
    }
    while let Some(answer) = calling.join_next().await {
        assert_eq!(answer.unwrap().status, 200);
    }
    assert_eq!(opened, 1);
    server.finish();
}

#[tokio::test]
async fn what_the_client_had_is_restored_and_it_hears_of_changed_lists() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let mut result = initialize_result();
    result["capabilities"] = json!({"tools": {"listChanged": true}, "prompts": {}, "logging": {}, "resources": {"subscribe": true}});
    tokio::join!(client.initialize(), async {
        server
            .next()
            .await
            .result_with(&[("mcp-session-id", "u1")], &result);
    });
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    client
        .send_to(&mut server, &ready, |asked| asked.reply(202, &[], ""))
        .await;
    for (method, params) in [
        ("logging/setLevel", json!({"level": "debug"})),
        ("resources/subscribe", json!({"uri": "a"})),
        ("resources/subscribe", json!({"uri": "b"})),
        ("resources/unsubscribe", json!({"uri": "a"})),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        client
            .send_to(&mut server, &message, |asked| asked.result(&json!({})))
            .await;
    }
    let (mut events, old) = client.open_stream(&mut server, client.get()).await;
    let message = call(7);
    let (answer, mut new) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        server
            .next()
            .await
            .result_with(&[("mcp-session-id", "u2")], &result);
        server.next().await.reply(202, &[], "");
        for expected in [
            json!({"method": "logging/setLevel", "params": {"level": "debug"}}),
            json!({"method": "resources/subscribe", "params": {"uri": "b"}}),
        ] {
            let asked = server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "u2");
            assert_eq!(
                (&asked.json()["method"], &asked.json()["params"]),
                (&expected["method"], &expected["params"])
            );
            asked.result(&json!({}));
        }
        // The stream of the GET and the call both go on at the new session, in either order.
        let mut stream = None;
        for _ in 0..2 {
            let asked = server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "u2");
            match asked.method.as_str() {
                "GET" => stream = Some(asked.events()),
                _ => asked.result(&json!({})),
            }
        }
        stream.expect("the stream to be opened again")
    });
    assert_eq!(answer.status, 200);
    old.closed().await;
    let (_, news) = events.next_message().await;
    assert_eq!(
        news["method"], "notifications/tools/list_changed",
        "the only list that was shown as changing"
    );
    new.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "n");
    server.finish();
}

#[tokio::test]
async fn a_deleted_session_stays_ended_and_so_does_what_was_opened_for_it() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let message = call(7);
    let (_, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        let opening = server.next().await;
        assert_eq!(opening.rpc_method(), "initialize");
        assert_eq!(client.delete().send().await.unwrap().status(), 204);
        assert_eq!(server.next().await.header("mcp-session-id"), "u1");
        opening.initialized(Some("newborn"));
        server.next().await.reply(202, &[], "");
        let deleted = server.next().await;
        assert_eq!(
            (deleted.method.as_str(), deleted.header("mcp-session-id")),
            ("DELETE", "newborn")
        );
    });
    assert_eq!(client.send(&call(8)).await.status, 404);
}

#[tokio::test]
async fn a_server_that_is_not_what_it_was_is_the_clients_to_judge() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        let mut other = initialize_result();
        other["capabilities"] = json!({});
        server
            .next()
            .await
            .result_with(&[("mcp-session-id", "u2")], &other);
        let deleted = server.next().await;
        assert_eq!(
            (deleted.method.as_str(), deleted.header("mcp-session-id")),
            ("DELETE", "u2")
        );
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
    server.finish();
}

#[tokio::test]
async fn a_stream_of_a_lost_generation_is_not_silence() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let (mut events, mut pen) = client
        .open_stream(&mut server, client.post(&call("old")))
        .await;
    pen.write("id: e1\ndata: {}\n\n");
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    pen.closed().await;
    let message = call(8);
    tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        reopen(&mut server, "u2").await;
        server.next().await.result(&json!({}));
    });
    let mut resumed = Events::new(
        client
            .get()
            .header("last-event-id", mark)
            .send()
            .await
            .unwrap(),
    );
    let (_, told) = resumed.next_message().await;
    assert_eq!(
        (&told["id"], &told["error"]["code"]),
        (&json!("old"), &json!(-31001))
    );
    resumed.ends_cleanly().await;
    server.finish();
}

#[tokio::test]
async fn a_server_that_does_not_come_back_is_told_within_the_budget() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.servers.values_mut().next().unwrap().recovery.budget = Duration::from_millis(500);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    drop(server);
    let started = tokio::time::Instant::now();
    let answer = sent(client.post(&list(7))).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, -31002));
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn the_operator_can_see_what_became_of_a_session() {
    let log = Log::default();
    let _kept = log.keep();
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        server.next().await.initialized(Some("u2"));
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    let ask = async |path: &str| {
        let client = Client::at(format!("http://{}{path}", gateway.admin().unwrap()));
        sent(client.request(reqwest::Method::GET)).await
    };
    let sessions = ask("/api/sessions").await.json();
    let hash = sessions["sessions"][0]["session"]
        .as_str()
        .unwrap()
        .to_owned();
    let told = ask(&format!("/api/sessions/{hash}")).await.json();
    assert_eq!(told["generation"], 2);
    let what = |told: &Value| -> Vec<String> {
        let events = told["timeline"].as_array().unwrap().iter();
        let what = events.map(|event| event["what"].as_str().unwrap().to_owned());
        what.collect()
    };
    assert_eq!(what(&told), ["opened", "pinned", "broken", "recovered"]);
    let address = server.url().split('/').nth(2).unwrap();
    assert_eq!(told["timeline"][1]["detail"], format!("at {address}"));
    let lines = log.lines_with("session recovered");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("cause=\"lost\"") && lines[0].contains("took="));
    assert!(!told.to_string().contains("u2"), "{told}");
    assert_eq!(ask("/api/sessions/0000000000000000").await.status, 404);
    let metrics = ask("/metrics").await.text;
    for line in [
        r#"bowline_losses_total{server="s",cause="lost"} 1"#,
        r#"bowline_recoveries_total{server="s",result="recovered"} 1"#,
        r#"bowline_recovery_seconds_count{server="s"} 1"#,
        r#"bowline_replays_total{server="s"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    let (deleted, ()) = tokio::join!(client.delete().send(), async {
        server.next().await.reply(200, &[], "");
    });
    assert_eq!(deleted.unwrap().status(), 204);
    let told = ask(&format!("/api/sessions/{hash}")).await.json();
    assert_eq!(
        what(&told),
        ["opened", "pinned", "broken", "recovered", "ended"]
    );
    assert_eq!(told["timeline"][4]["detail"], "deleted");
}
