//! What is said between a client and a server that is a process.

use serde_json::{Value, json};

use crate::kit::client::sent;
use crate::kit::events::Events;
use crate::kit::gateway::{health, with_admin};
use crate::kit::messages::{call, list, note};
use crate::kit::programs::{Play, text_of, until_gone};

fn calling(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    let mut message = call(id);
    message["params"] = json!({"name": tool, "arguments": arguments});
    message
}

#[tokio::test]
async fn a_session_opens_lists_calls_and_ends() {
    let play = Play::open_with(with_admin).await;
    let first = play.client.send(&list("l")).await.json();
    assert_eq!(first["result"]["tools"].as_array().unwrap().len(), 6);
    assert_eq!(first["result"]["nextCursor"], "second");
    let answer = play
        .call("echo", &json!({"text": "grüße\n\u{2028}\"x\""}))
        .await;
    assert_eq!(answer.headers["content-type"], "application/json");
    assert_eq!(text_of(&answer), "grüße\n\u{2028}\"x\"");
    let pretty = serde_json::to_string_pretty(&calling(9, "echo", &json!({"text": "a\nb"})));
    let answer = sent(play.client.post_text(pretty.unwrap())).await;
    assert_eq!(text_of(&answer), "a\nb");
    let server = health(&play.gateway).await["servers"]["s"].clone();
    assert_eq!(
        (&server["status"], &server["processes"]),
        (&json!("ok"), &json!(1))
    );
    assert_eq!(server["endpoints"][0]["address"], "sh");
    let pid = play.pid().await;
    assert_eq!(play.client.end().await.status, 204);
    until_gone(pid).await;
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn each_session_has_a_process_of_its_own() {
    let play = Play::open().await;
    let mut other = crate::kit::client::Client::new(&play.gateway);
    assert_eq!(other.begin().await.status, 200);
    let theirs = other.call(1, "peek", &json!({"key": "k"})).await;
    assert_ne!(text_of(&theirs), play.pid().await.to_string());
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn a_large_answer_arrives_whole() {
    let play = Play::open().await;
    let answer = play.call("large", &json!({"bytes": 30 << 20})).await;
    assert_eq!(text_of(&answer).len(), 30 << 20);
}

#[tokio::test]
async fn progress_comes_before_the_answer_on_the_calls_own_stream() {
    let play = Play::open().await;
    let with_token = |id: u32| {
        let mut message = calling(id, "progress", &json!({"steps": 3}));
        message["params"]["_meta"] = json!({"progressToken": format!("t{id}")});
        message
    };
    let (one, two) = (with_token(1), with_token(2));
    let (one, two) = tokio::join!(play.client.send(&one), play.client.send(&two));
    for (id, answer) in [(1, one), (2, two)] {
        let messages = answer.messages();
        assert_eq!(messages.len(), 4, "{answer:?}");
        for message in &messages[..3] {
            assert_eq!(message["params"]["progressToken"], format!("t{id}"));
        }
        assert_eq!(messages[3]["id"], id);
    }
}

#[tokio::test]
async fn the_server_asks_on_the_stream_of_a_get_or_else_on_that_of_the_call() {
    for method in ["sampling/createMessage", "elicitation/create", "roots/list"] {
        for listens in [true, false] {
            let play = Play::open().await;
            let mut get = match listens {
                true => Some(play.client.listen().await),
                false => None,
            };
            let arguments = json!({"method": method, "params": {"x": 1}});
            let asking = play.client.post(&calling(5, "ask", &arguments)).send();
            let (question, answered) = match &mut get {
                Some(get) => {
                    let answering = async {
                        let (_, question) = get.next_message().await;
                        reply(&play, &question).await;
                        question
                    };
                    let (question, response) = tokio::join!(answering, asking);
                    (question, response.unwrap().json::<Value>().await.unwrap())
                }
                None => {
                    let mut stream = Events::new(asking.await.unwrap());
                    let (_, question) = stream.next_message().await;
                    reply(&play, &question).await;
                    (question, stream.next_message().await.1)
                }
            };
            assert_eq!(
                (&question["method"], &question["params"]["x"]),
                (&json!(method), &json!(1))
            );
            assert_ne!(question["id"], 1, "the server's own id is not shown");
            let text = answered["result"]["content"][0]["text"].as_str().unwrap();
            let heard: Value = serde_json::from_str(text).unwrap();
            assert_eq!(
                (&heard["id"], &heard["result"]["y"]),
                (&json!(1), &json!(2))
            );
        }
    }
}

async fn reply(play: &Play, question: &Value) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"y": 2}});
    assert_eq!(play.client.send(&answer).await.status, 202);
}

#[tokio::test]
async fn notifications_wait_for_a_stream_within_bounds() {
    let play = Play::open().await;
    let arguments = json!({"method": "notifications/message", "times": 3});
    let answer = play.call("notify", &arguments).await;
    let methods: Vec<_> = answer
        .messages()
        .iter()
        .map(|one| one["method"].clone())
        .collect();
    assert_eq!(methods.len(), 4, "{answer:?}");
    assert!(
        methods[..3]
            .iter()
            .all(|method| method == "notifications/message")
    );
    let mut get = play.client.listen().await;
    let (answer, (_, heard)) = tokio::join!(play.call("notify", &arguments), get.next_message());
    assert_eq!(answer.messages().len(), 1, "a GET is open");
    assert_eq!(heard["params"]["data"], 0);
}

#[tokio::test]
async fn a_cancelled_call_ends_and_the_server_hears_of_it() {
    let play = Play::open().await;
    let hanging = calling(11, "hang", &json!({"key": "k"}));
    let cancelling = async {
        play.tally.until("hang k", 1).await;
        let mut cancel = note("notifications/cancelled");
        cancel["params"] = json!({"requestId": 11});
        assert_eq!(play.client.send(&cancel).await.status, 202);
    };
    let (answer, ()) = tokio::join!(play.client.send(&hanging), cancelling);
    assert!(answer.failure().is_some(), "{answer:?}");
    play.tally.until("cancelled 11", 1).await;
    // One that has told its progress ends without an answer.
    let mut streaming = calling(12, "hang", &json!({"key": "l", "progress": true}));
    streaming["params"]["_meta"] = json!({"progressToken": "t"});
    let mut stream = Events::new(play.client.post(&streaming).send().await.unwrap());
    assert_eq!(
        stream.next_message().await.1["method"],
        "notifications/progress"
    );
    let mut cancel = note("notifications/cancelled");
    cancel["params"] = json!({"requestId": 12});
    assert_eq!(play.client.send(&cancel).await.status, 202);
    stream.ends_cleanly().await;
    assert_eq!(
        text_of(&play.call("echo", &json!({"text": "x"})).await),
        "x"
    );
    assert_eq!(play.tally.starts(), 1);
}
