//! `call_timeout`: no answer and no progress in time is told, and the server is told, too.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use reqwest::Method;
use serde_json::{Value, json};

use crate::client::{Client, call, config, read};

const LIMIT: Duration = Duration::from_millis(300);

async fn opened() -> (Gateway, Scripted, Client) {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.servers.values_mut().next().unwrap().call_timeout = Some(LIMIT);
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    (gateway, server, client)
}

/// How many answers were given up, by the metrics.
async fn given_up(gateway: &Gateway) -> Option<String> {
    let metrics = Client::at(format!("http://{}/metrics", gateway.admin().unwrap()));
    let text = read(metrics.request(Method::GET).send().await.unwrap())
        .await
        .text;
    let mut lines = text.lines();
    lines.find_map(|line| {
        let count = line.strip_prefix(r#"bowline_refusals_total{reason="deadline"} "#)?;
        Some(count.to_owned())
    })
}

async fn expect_cancel(server: &mut Scripted, id: Value) {
    let asked = server.next().await;
    assert_eq!(asked.rpc_method(), "notifications/cancelled");
    assert_eq!(asked.json()["params"]["requestId"], id);
    asked.reply(202, &[], "");
}

#[tokio::test]
async fn no_answer_in_time_is_told_in_band() {
    let (gateway, mut server, client) = opened().await;
    let message = call("slow");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let _silent = server.next().await;
        expect_cancel(&mut server, json!("slow")).await;
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31004));
    assert_eq!(answer.json()["id"], "slow");
    assert_eq!(answer.json()["error"]["data"]["reason"], "deadline");
    assert_eq!(given_up(&gateway).await.as_deref(), Some("1"));
    server.finish();
}

#[tokio::test]
async fn progress_is_patience_and_the_stream_says_when_it_is_over() {
    let (gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let progress =
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n";
    let started = tokio::time::Instant::now();
    for _ in 0..4 {
        tokio::time::sleep(LIMIT / 2).await;
        pen.write(progress);
        assert_eq!(events.next().await, progress);
    }
    assert!(
        started.elapsed() > LIMIT,
        "longer than it would have had without progress"
    );
    // Other notifications are no progress.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n");
    events.next().await;
    let (_, last) = events.next_message().await;
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(7), &json!(-31004))
    );
    events.ends_cleanly().await;
    assert_eq!(given_up(&gateway).await.as_deref(), Some("1"));
    expect_cancel(&mut server, json!(7)).await;
    server.finish();
}

#[tokio::test]
async fn an_answer_in_time_is_an_answer() {
    let (_gateway, mut server, client) = opened().await;
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    // The stream of a GET has no deadline.
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    tokio::time::sleep(LIMIT * 2).await;
    pen.write("data: late\n\n");
    assert_eq!(events.next().await, "data: late\n\n");
    server.finish();
}
