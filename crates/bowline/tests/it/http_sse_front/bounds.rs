//! What a client cannot do.

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use super::conversations::scripted;
use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::messages::call;
use crate::kit::sse::{REVISION, Sse, opened};
use crate::kit::wait::until_so;
use crate::kit::wired::{call_of, initialize};

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    config.limits.body_bytes = 100 * 1024;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    let long = call_of("long", "bump", &json!({"key": "x".repeat(1024 * 1024)}));
    let refused = client.send(&long).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    let fits = call_of("fits", "bump", &json!({"key": "x".repeat(90 * 1024)}));
    assert!(client.ask(&fits).await["result"].is_object());
}

#[tokio::test]
async fn requests_under_way_are_limited_and_answers_still_get_through() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 6;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.say(&initialize(REVISION, &json!({}))).await;
    server.next().await.initialized(Some("u1"));
    client.answer_to(&json!("init")).await;
    for id in 0..6 {
        client.say(&call(id)).await;
    }
    let refused = client.send(&call(6)).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.json()["id"], 6);
    assert!(refused.headers.contains_key("retry-after"));
    // One place is the stream's own, so one call waits for its turn.
    let first = server.next().await;
    let question = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    let mut pen = first.events();
    pen.write(format!("data: {question}\n\n"));
    let asked = client.hear_of("roots/list").await;
    client
        .say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}))
        .await;
    loop {
        let next = server.next().await;
        match next.json().get("method") {
            Some(_) => next.result(&json!({})),
            None => break next.reply(202, &[], ""),
        }
    }
}

#[tokio::test]
async fn streams_count_towards_the_callers_share_until_they_end() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 4;
    let gateway = Gateway::start(config).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(opened(&gateway, "/sse/s", None).await);
    }
    let client = Client::at(format!("http://{}/sse/s", gateway.listen()));
    let refused = sent(client.get()).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
    open.pop();
    until_so("a place is free", async || {
        let response = client.get().send().await.unwrap();
        response.status() == 200
    })
    .await;
}

/// Far more than fits anywhere on the way: what is not read is not fetched from the server either.
#[tokio::test]
async fn clients_that_do_not_read_hold_little_and_block_only_themselves() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.settings(|settings| settings.all_tools = true);
    let gateway = crate::kit::gateway::gateway(&server.url()).await;
    let mut stuck = Vec::new();
    let before = resident();
    for _ in 0..8 {
        let (http, events, endpoint) = opened(&gateway, "/sse/s", None).await;
        let client = Client::at(endpoint.to_string());
        let begin = initialize(REVISION, &json!({}));
        assert_eq!(client.send(&begin).await.status, 202);
        for id in 0..40 {
            let key = json!({"key": id.to_string(), "bytes": 4 << 20});
            let large = call_of(id, "large", &key);
            assert_eq!(client.send(&large).await.status, 202);
        }
        stuck.push((http, events));
    }
    let mut other = Sse::open(&gateway).await;
    other.begin().await;
    for id in 0..20 {
        let answer = other.ask(&call_of(id, "bump", &json!({"key": "o"}))).await;
        assert!(answer["result"].is_object(), "{answer}");
    }
    // 1.25 GiB were asked for.
    let grown = resident().saturating_sub(before);
    assert!(grown < 400 << 20, "{} MiB", grown >> 20);
}

/// The memory of this process, in which gateway and server run.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[tokio::test]
async fn what_a_client_posts_in_a_flood_is_bounded() {
    let (_gateway, _server, client, _listening) = scripted(REVISION).await;
    let mut refused = 0;
    for id in 0..1100 {
        refused += usize::from(client.send(&call(id)).await.status == 503);
    }
    assert!(refused >= 1100 - 1024, "{refused}");
}
