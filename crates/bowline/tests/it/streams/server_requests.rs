//! What a server asks a client is taken back when the session that asked is gone.

use bowline_testbed::scripted::{Pen, Scripted};
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::messages::call;
use crate::kit::opened::{forgot, opened};

const QUESTION: &str = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n";

/// Reads a question; its id as the client sees it.
async fn question(events: &mut Events, pen: &mut Pen) -> Value {
    pen.write(QUESTION);
    let (_, asked) = events.next_message().await;
    assert_eq!(asked["method"], "roots/list");
    asked["id"].clone()
}

/// Loses the session by a call, which is answered by the next. A client that listens goes on
/// listening there, to the stream that is returned.
async fn lose(server: &mut Scripted, client: &Client, listens: bool) -> Option<Pen> {
    let message = call("loser");
    let (answer, stream) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        server.next().await.initialized(Some("u2"));
        let mut stream = None;
        // In either order.
        for _ in 0..=usize::from(listens) {
            let asked = server.next().await;
            match asked.method.as_str() {
                "GET" => stream = Some(asked.events()),
                _ => asked.result(&json!({})),
            }
        }
        stream
    });
    assert_eq!(answer.status, 200);
    stream
}

fn assert_cancels(told: &Value, id: &Value) {
    assert_eq!(
        (&told["method"], &told["params"]["requestId"]),
        (&json!("notifications/cancelled"), id)
    );
}

#[tokio::test]
async fn a_question_on_the_get_stream_is_taken_back_there() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    let id = question(&mut events, &mut pen).await;
    let _pen = lose(&mut server, &client, true).await;
    assert_cancels(&events.next_message().await.1, &id);
    // An answer that comes all the same goes nowhere.
    let late = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    assert_eq!(client.send(&late).await.status, 202);
    let message = call(8);
    let next = client.send_to(&mut server, &message, |asked| {
        assert_eq!(asked.json()["id"], 8);
        asked.result(&json!({}));
    });
    assert_eq!(next.await.status, 200);
}

#[tokio::test]
async fn a_question_of_a_running_call_is_taken_back_on_its_stream() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let id = question(&mut events, &mut pen).await;
    lose(&mut server, &client, false).await;
    assert_cancels(&events.next_message().await.1, &id);
    // The call ends by its own outcome.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    assert_eq!(events.next_message().await.1["id"], 7);
    server.finish();
}

#[tokio::test]
async fn a_client_without_a_stream_hears_of_it_when_it_opens_one() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let id = question(&mut events, &mut pen).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    drop(pen);
    assert_eq!(events.next_message().await.1["id"], 7);
    events.ends_cleanly().await;
    lose(&mut server, &client, false).await;
    let (mut events, _pen) = client.open_stream(&mut server, client.get()).await;
    assert_cancels(&events.next_message().await.1, &id);
    server.finish();
}

#[tokio::test]
async fn what_was_answered_or_taken_back_is_not_cancelled() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    let id = question(&mut events, &mut pen).await;
    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    let answered = client.send_to(&mut server, &answer, |asked| {
        assert_eq!(asked.json()["id"], 1);
        asked.reply(202, &[], "");
    });
    assert_eq!(answered.await.status, 202);
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"roots/list\"}\n\n");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":2}}\n\n");
    let second = events.next_message().await.1["id"].clone();
    assert_cancels(&events.next_message().await.1, &second);
    let mut pen = lose(&mut server, &client, true).await.unwrap();
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"next\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "next");
    server.finish();
}

#[tokio::test]
async fn a_question_with_members_that_are_null_has_its_mark_and_its_answer_arrives() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write(
        "data: {\"jsonrpc\":\"2.0\",\"id\":\"ask-7\",\"method\":\"roots/list\",\"error\":null}\n\n",
    );
    let (_, asked) = events.next_message().await;
    assert_ne!(asked["id"], "ask-7");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    let (answered, ()) = tokio::join!(client.send(&answer), async {
        let heard = server.next().await;
        assert_eq!(heard.json()["id"], "ask-7");
        heard.reply(202, &[], "");
    });
    assert_eq!(answered.status, 202);
}

#[tokio::test]
async fn an_answer_with_members_that_are_null_is_the_answer() {
    let (_gateway, mut server, client) = opened().await;
    let message = call(7);
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&message)).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":null,\"result\":{}}\n\n");
    drop(pen);
    let (_, answer) = events.next_message().await;
    assert_eq!(answer["id"], 7);
    // And nothing after it.
    events.ends_cleanly().await;
}
