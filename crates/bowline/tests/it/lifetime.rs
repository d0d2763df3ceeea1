//! Sessions end when nobody uses them; an open stream and a running call are use.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::client::{Client, call, config};

#[tokio::test]
async fn an_idle_session_expires_here_and_at_the_server() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.session_idle = Duration::from_millis(300);
    let gateway = Gateway::start(config).await.unwrap();
    let streaming = Client::open(&gateway, &mut server, "streaming").await;
    let (_events, _pen) = streaming.open_stream(&mut server, streaming.get()).await;
    let calling = Client::open(&gateway, &mut server, "calling").await;
    let request = calling.post(&call(1)).send();
    let running = tokio::task::JoinSet::from_iter([request]);
    let asked = server.next().await;
    // Opened last and used least: once it has expired, the others would have, too.
    let idle = Client::open(&gateway, &mut server, "idle").await;
    let deleted = server.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "idle")
    );
    deleted.reply(204, &[], "");
    assert_eq!(idle.send(&call(1)).await.status, 404);

    asked.result(&json!({}));
    assert_eq!(running.join_all().await[0].as_ref().unwrap().status(), 200);
    let answer = streaming
        .send_to(&mut server, &call(2), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn stopping_ends_streams_cleanly_and_does_not_wait_for_idle_connections() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    let (events, pen) = client.open_stream(&mut server, client.get()).await;
    let stopped = tokio::time::timeout(Duration::from_secs(3), gateway.stop());
    let (stopped, ()) = tokio::join!(stopped, events.ends_cleanly());
    stopped.expect("a stop that waits for nothing");
    pen.closed().await;
}
