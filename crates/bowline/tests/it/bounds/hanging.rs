//! A replica that hangs is found out soon, and one that is merely slow keeps its sessions.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Server};
use bowline_testbed::scripted::Scripted;
use serde_json::json;
use tokio::time::Instant;

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::call;

/// Short enough for a test; everything else follows from it.
const BUDGET: Duration = Duration::from_secs(6);

fn over(urls: &[&str]) -> Config {
    let mut config = config(&[]);
    let mut server = Server::from_urls(&urls.join(",")).unwrap();
    server.recovery.budget = BUDGET;
    config.servers.insert("s".parse().unwrap(), server);
    config
}

/// A session on the first of two replicas, and the second, which takes sessions.
async fn opened() -> (Gateway, Scripted, Scripted, Client) {
    let (mut first, second) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(over(&[first.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut first, "u1").await;
    gateway.reload(over(&[first.url(), second.url()])).unwrap();
    (gateway, first, second, client)
}

fn list(id: i64) -> serde_json::Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"})
}

#[tokio::test]
async fn a_session_leaves_a_replica_that_answers_nobody() {
    let (_gateway, mut first, mut second, client) = opened().await;
    let started = Instant::now();
    let message = list(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(first.next().await);
        // From now on nothing is answered there.
        let opening = second.next().await;
        assert_eq!(opening.rpc_method(), "initialize");
        opening.initialized(Some("u2"));
        let again = second.next().await;
        assert_eq!(again.header("mcp-session-id"), "u2");
        again.result(&json!({"tools": []}));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(started.elapsed() < BUDGET / 2, "{:?}", started.elapsed());
    // What was left there is ended, if it hears of it.
    let deleted = loop {
        let asked = first.next().await;
        if asked.rpc_method() != "ping" {
            break asked;
        }
    };
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "u1")
    );
    second.finish();
}

#[tokio::test]
async fn a_session_stays_with_a_replica_that_is_slow() {
    let (_gateway, mut first, second, client) = opened().await;
    let message = list(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(first.next().await);
        // Too late for the first, and in time for the second.
        first.next().await.given_up().await;
        let ping = first.next().await;
        assert_eq!(ping.rpc_method(), "ping");
        ping.result(&json!({}));
        let again = first.next().await;
        assert_eq!(again.header("mcp-session-id"), "u1");
        again.result(&json!({"tools": []}));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    second.finish();
}

#[tokio::test]
async fn a_lost_session_is_not_opened_where_nobody_answers() {
    let (_gateway, mut first, mut second, client) = opened().await;
    let started = Instant::now();
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        first.next().await.reply(404, &[], "");
        let opening = first.next().await;
        assert_eq!(opening.rpc_method(), "initialize");
        opening.given_up().await;
        second.next().await.initialized(Some("u2"));
        second.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(started.elapsed() < BUDGET / 4, "{:?}", started.elapsed());
    second.finish();
}

#[tokio::test]
async fn the_only_replica_may_take_its_time_to_open_a_session() {
    let mut only = Scripted::start().await;
    let gateway = Gateway::start(over(&[only.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut only, "u1").await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        only.next().await.reply(404, &[], "");
        let opening = only.next().await;
        tokio::time::sleep(BUDGET / 4).await;
        opening.initialized(Some("u2"));
        only.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{}", answer.text);
    only.finish();
}

/// A rest that has become long is for endpoints that others stand in for.
#[tokio::test]
async fn a_replica_that_restarts_often_is_back_soon_if_it_is_the_only_one() {
    let tally = bowline_testbed::counting::Tally::default();
    let only = bowline_testbed::counting::Counting::start("r", &tally)
        .await
        .unwrap();
    let gateway = Gateway::start(over(&[&only.url()])).await.unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.initialize().await.status, 200);
    for id in 0..4 {
        only.die().await;
        let message = list(id);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            tokio::time::sleep(BUDGET / 20).await;
            only.come_back().unwrap();
        });
        assert_eq!(answer.status, 200, "restart {id}: {}", answer.text);
    }
}

/// An answer that breaks off twice: the request goes again, and what comes of that is resumed.
#[tokio::test]
async fn a_repeated_request_whose_answer_is_resumed_is_answered_under_its_own_id() {
    let mut only = Scripted::start().await;
    let gateway = Gateway::start(over(&[only.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut only, "u1").await;
    let (mut events, pen) = client.open_stream(&mut only, client.post(&list(7))).await;
    pen.cut();
    let ping = only.next().await;
    assert_eq!(ping.rpc_method(), "ping");
    ping.result(&json!({}));
    let again = only.next().await;
    let id = again.json()["id"].clone();
    assert_ne!(id, 7);
    let mut pen = again.events();
    pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "one");
    pen.cut();
    let resumed = only.next().await;
    assert_eq!(resumed.header("last-event-id"), "e1");
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {}});
    resumed
        .events()
        .write(format!("id: e2\ndata: {answer}\n\n"));
    assert_eq!(events.next_message().await.1["id"], 7);
    events.ends_cleanly().await;
    only.finish();
}

/// The repeated request is answered by a stream that has ended when its head comes.
#[tokio::test]
async fn a_repeated_answer_that_is_there_at_once_tells_no_progress_twice() {
    let mut only = Scripted::start().await;
    let gateway = Gateway::start(over(&[only.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut only, "u1").await;
    let (mut events, mut pen) = client.open_stream(&mut only, client.post(&list(7))).await;
    let progress = |progress: u32| {
        let params = json!({"progressToken": 1, "progress": progress});
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params});
        format!("data: {told}\n\n")
    };
    pen.write(progress(1));
    assert_eq!(events.next_message().await.1["params"]["progress"], 1);
    pen.cut();
    only.next().await.result(&json!({}));
    let again = only.next().await;
    let answer = json!({"jsonrpc": "2.0", "id": again.json()["id"], "result": {}});
    let whole = format!("{}{}data: {answer}\n\n", progress(1), progress(2));
    again.reply(200, &[("content-type", "text/event-stream")], whole);
    assert_eq!(events.next_message().await.1["params"]["progress"], 2);
    assert_eq!(events.next_message().await.1["id"], 7);
    events.ends_cleanly().await;
    only.finish();
}
