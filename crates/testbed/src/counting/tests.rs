//! The server counts, loses sessions, crashes and restarts.

use serde_json::{Value, json};

use super::{Counting, Tally};
use crate::client::Client;
use crate::faulty::Canned;

async fn opened(replica: &Counting) -> Client {
    let mut client = Client::new(&replica.url()).unwrap();
    assert_eq!(client.open().await.unwrap().status, 200);
    client
}

fn key(key: &str) -> Value {
    json!({"key": key})
}

#[tokio::test]
async fn executions_are_counted_by_key_over_all_replicas() {
    let tally = Tally::default();
    let one = Counting::start("one", &tally).await.unwrap();
    let two = Counting::start("two", &tally).await.unwrap();
    for replica in [&one, &two] {
        let mut client = opened(replica).await;
        let answer = client.call(1, "bump", &key("k")).await.unwrap();
        let result = &answer.to(&json!(1)).unwrap()["result"];
        assert_eq!(result["content"][0]["text"], "k");
    }
    assert_eq!(tally.executions("k"), 2);
    assert_eq!(tally.executions("other"), 0);
    let places: Vec<_> = tally.all()["k"]
        .iter()
        .map(|ran| ran.replica.clone())
        .collect();
    assert_eq!(places, ["one", "two"]);
    assert_eq!((one.initializes(), two.initializes()), (1, 1));
}

#[tokio::test]
async fn forgotten_and_dead_sessions_are_unknown() {
    let tally = Tally::default();
    let replica = Counting::start("r", &tally).await.unwrap();
    let mut client = opened(&replica).await;
    replica.forget_sessions();
    let answer = client.call(1, "bump", &key("k")).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (404, Some(-32001)));
    replica.settings(|settings| {
        settings.lost = Canned::json(400, r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32000}}"#);
    });
    let answer = client.call(2, "bump", &key("k")).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.code()), (400, Some(-32000)));
    assert_eq!(answer.messages[0]["id"], 2);

    let mut client = opened(&replica).await;
    let mut other = client.twin();
    let mut events = other.listen(None).await.unwrap();
    replica.die().await;
    assert!(events.next().await.is_err(), "its connections are reset");
    assert!(client.call(3, "bump", &key("k")).await.is_err());
    replica.come_back().unwrap();
    assert_eq!(client.call(4, "bump", &key("k")).await.unwrap().status, 400);
    assert_eq!(tally.executions("k"), 0);
    assert_eq!(replica.strays(), 3);
    assert!(replica.sessions().is_empty());
}

#[tokio::test]
async fn what_a_session_was_told_can_be_seen() {
    let replica = Counting::start("r", &Tally::default()).await.unwrap();
    let mut client = opened(&replica).await;
    let ask = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
    for message in [
        ask("logging/setLevel", json!({"level": "debug"})),
        ask("resources/subscribe", json!({"uri": "a:1"})),
        ask("resources/subscribe", json!({"uri": "a:2"})),
        ask("resources/unsubscribe", json!({"uri": "a:1"})),
        ask("ping", json!({})),
    ] {
        let answer = client.send(&message).await.unwrap();
        assert_eq!(answer.to(&message["id"]).unwrap()["result"], json!({}));
    }
    let [session] = replica.sessions().try_into().unwrap();
    assert!(session.initialized);
    assert_eq!(session.log_level.as_deref(), Some("debug"));
    assert_eq!(
        session.subscriptions.into_iter().collect::<Vec<_>>(),
        ["a:2"]
    );
    assert_eq!(
        session.methods[..2],
        ["notifications/initialized", "logging/setLevel"]
    );
    assert_eq!(session.parameters["clientInfo"]["name"], "testbed");
    assert_eq!(client.delete().await.unwrap().status, 200);
    assert_eq!(replica.deletes(), 1);
    assert_eq!(
        client.send(&ask("ping", json!({}))).await.unwrap().status,
        404
    );
}

#[tokio::test]
async fn slow_calls_tell_progress_and_cannot_be_resumed() {
    let tally = Tally::default();
    let replica = Counting::start("r", &tally).await.unwrap();
    let mut client = opened(&replica).await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "slow", "arguments": {"key": "k", "steps": 2, "ms": 1}, "_meta": {"progressToken": "p"},
    }});
    let answer = client.send(&message).await.unwrap();
    let told: Vec<_> = answer
        .messages
        .iter()
        .map(|told| told["params"]["progress"].as_u64())
        .collect();
    assert_eq!(told, [Some(1), Some(2), None]);
    assert!(answer.event_ids.is_empty());
    assert_eq!(tally.executions("k"), 1);
}

#[tokio::test]
async fn a_stream_with_ids_can_be_resumed_anywhere_even_while_it_runs() {
    let replica = Counting::start("r", &Tally::default()).await.unwrap();
    let mut client = opened(&replica).await;
    let arguments = json!({"key": "k", "steps": 3, "ms": 20});
    let mut twin = client.twin();
    let whole = twin.call("x", "stream_read", &arguments);
    let resumed = async {
        let mut events = loop {
            let events = client.listen(Some("1-0")).await.unwrap();
            if events.head.status == 200 {
                break events;
            }
            tokio::task::yield_now().await;
        };
        let mut ids = Vec::new();
        while let Some(event) = events.next().await.unwrap() {
            ids.extend(event.id);
        }
        ids
    };
    let (whole, resumed) = tokio::join!(whole, resumed);
    let whole = whole.unwrap();
    assert_eq!(whole.event_ids, ["1-0", "1-1", "1-2", "1-3", "1-4"]);
    assert_eq!(whole.event_ids[1..], resumed);
    assert!(whole.to(&json!("x")).is_some());
}

#[tokio::test]
async fn the_get_stream_carries_what_is_emitted() {
    let replica = Counting::start("r", &Tally::default()).await.unwrap();
    let mut client = opened(&replica).await;
    let mut events = client.listen(None).await.unwrap();
    replica.emit(&json!({"n": 1}));
    replica.emit(&json!({"n": 2}));
    let first = events.next().await.unwrap().unwrap();
    assert_eq!(
        (first.id.as_deref(), &first.message),
        (Some("0-0"), &json!({"n": 1}))
    );
    drop(events);
    let mut events = client.listen(first.id.as_deref()).await.unwrap();
    assert_eq!(
        events.next().await.unwrap().unwrap().message,
        json!({"n": 2})
    );
    assert_eq!(replica.sessions()[0].listens, 2);
}

#[tokio::test]
async fn over_http_sse_the_stream_is_the_session_and_what_is_forgotten_gets_404() {
    let tally = Tally::default();
    let replica = Counting::start("one", &tally).await.unwrap();
    let open = async || {
        let mut client = Client::new(&replica.sse_url()).unwrap();
        let mut events = client.listen(None).await.unwrap();
        let endpoint = events.next().await.unwrap().unwrap().data;
        (events, format!("http://{}{endpoint}", replica.address()))
    };
    let (mut events, url) = open().await;
    let mut posts = Client::new(&url).unwrap();
    let answer = posts.call(1, "bump", &key("k")).await.unwrap();
    assert_eq!(answer.status, 202);
    let event = events.next().await.unwrap().unwrap();
    assert_eq!(event.message["result"]["content"][0]["text"], "k");
    assert_eq!(tally.executions("k"), 1);
    replica.cut_streams();
    assert!(events.next().await.unwrap().is_none());
    let (_events, url) = open().await;
    replica.forget_sessions();
    let mut posts = Client::new(&url).unwrap();
    let answer = posts.call(2, "bump", &key("late")).await.unwrap();
    assert_eq!((answer.status.as_u16(), tally.executions("late")), (404, 0));
}
