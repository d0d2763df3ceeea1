//! What goes in and out.

use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use serde_json::{Value, json};

use crate::kit::messages::{assert_too_large, call, list, ready};
use crate::kit::opened::BATCHING;
use crate::kit::replicas::replicas;
use crate::kit::wired::{Wired, call_of, initialize};

/// A server that the test plays, and a client whose session is `u1` there. The server's stream is open.
pub(super) async fn scripted(version: &str) -> (Scripted, Wired, Asked) {
    let mut server = Scripted::start().await;
    let mut client = Wired::at(server.url()).await;
    let opening = initialize(version, &json!({}));
    client.say(&opening).await;
    let mut result = initialize_result();
    result["protocolVersion"] = version.into();
    server
        .next()
        .await
        .result_with(&[("mcp-session-id", "u1")], &result);
    assert_eq!(client.answer_to(&opening["id"]).await["result"], result);
    client.say(&ready()).await;
    server.next().await.reply(202, &[], "");
    let listening = server.next().await;
    assert_eq!(listening.method, "GET");
    (server, client, listening)
}

#[tokio::test]
async fn a_server_is_used_as_over_http() {
    let servers = replicas(1).await;
    let mut client = Wired::at(&servers.urls[0]).await;
    let capabilities = json!({"sampling": {}, "elicitation": {}});
    let opened = client.begin_with("2025-11-25", &capabilities).await;
    assert_eq!(opened["result"]["protocolVersion"], "2025-11-25");

    let listed = client.ask(&list(1)).await;
    assert!(listed["result"]["tools"].as_array().unwrap().len() > 5);
    let said = client
        .ask(&call_of(2, "test_simple_text", &json!({})))
        .await;
    assert!(said["result"]["content"][0]["text"].is_string(), "{said}");

    let mut progressing = call_of("p", "test_tool_with_progress", &json!({}));
    progressing["params"]["_meta"] = json!({"progressToken": "mine"});
    client.say(&progressing).await;
    let progress = client.hear_of("notifications/progress").await;
    assert_eq!(progress["params"]["progressToken"], "mine");
    assert!(client.answer_to(&json!("p")).await["result"].is_object());

    client
        .say(&call_of(3, "test_sampling", &json!({"prompt": "a\nb"})))
        .await;
    let asked = client.hear_of("sampling/createMessage").await;
    let content = &asked["params"]["messages"][0]["content"];
    assert_eq!(content["text"], "a\nb", "{asked}");
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {
        "role": "assistant", "model": "m", "content": {"type": "text", "text": "ünïcödé\n…"},
    }});
    client.say(&answer).await;
    let said = client.answer_to(&json!(3)).await;
    let text = &said["result"]["content"][0]["text"];
    assert_eq!(text, "LLM response: ünïcödé\n…", "{said}");
    client.close();
    client.ended().await;
    assert_eq!(servers.replicas[0].live_sessions().await, 0);
}

#[tokio::test]
async fn a_stream_that_the_server_ends_early_is_polled() {
    let servers = replicas(1).await;
    let mut client = Wired::at(&servers.urls[0]).await;
    client.begin().await;
    let answer = client
        .ask(&call_of(1, "test_reconnection", &json!({})))
        .await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test]
async fn large_answers_are_one_line_each() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.settings(|settings| settings.all_tools = true);
    let mut client = Wired::at(&server.url()).await;
    client.begin().await;
    for tool in ["large", "large_event"] {
        let key = json!({"key": tool, "bytes": 30 << 20});
        let answer = client.ask(&call_of(tool, tool, &key)).await;
        assert!(answer["result"].is_object(), "{tool}");
        let key = json!({"key": tool, "bytes": 66 << 20});
        let answer = client.ask(&call_of(tool, tool, &key)).await;
        assert_too_large(&answer);
    }
}

#[tokio::test]
async fn json_over_several_lines_becomes_one() {
    let (mut server, mut client, _listening) = scripted("2025-11-25").await;
    client.say(&call(1)).await;
    let asked = server.next().await;
    let pretty =
        "{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n  \"result\": {\"a\": \"b\\nc\"}\n}\n";
    asked.reply(200, &[("content-type", "application/json")], pretty);
    assert_eq!(client.answer_to(&json!(1)).await["result"]["a"], "b\nc");
}

#[tokio::test]
async fn no_request_overtakes_initialized_and_notices_keep_their_order() {
    let mut server = Scripted::start().await;
    let mut client = Wired::at(server.url()).await;
    // All at once, before the session is open.
    client.say(&initialize("2025-11-25", &json!({}))).await;
    client.say(&ready()).await;
    for number in 0..5 {
        let params = json!({"number": number});
        client
            .say(&json!({"jsonrpc": "2.0", "method": "notifications/x", "params": params}))
            .await;
    }
    client.say(&list(1)).await;
    server.next().await.initialized(Some("u1"));
    let first = server.next().await;
    assert_eq!(first.rpc_method(), "notifications/initialized");
    first.reply(202, &[], "");
    let (mut numbers, mut others) = (Vec::new(), Vec::new());
    while numbers.len() + others.len() < 7 {
        let asked = server.next().await;
        match asked.method.as_str() {
            "GET" => others.push(asked),
            _ if asked.rpc_method() == "tools/list" => others.push(asked),
            _ => {
                numbers.push(asked.json()["params"]["number"].as_u64().unwrap());
                asked.reply(202, &[], "");
            }
        }
    }
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn what_the_server_says_on_its_own_is_passed_on_and_its_questions_are_answered() {
    let (mut server, mut client, listening) = scripted("2025-11-25").await;
    let mut pen = listening.events();
    pen.write(
        "id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n",
    );
    client.hear_of("notifications/tools/list_changed").await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n");
    let asked = client.hear_of("roots/list").await;
    assert_ne!(asked["id"], 7, "a mark, as at every front");
    client
        .say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}))
        .await;
    let answer = server.next().await;
    assert_eq!(answer.json()["id"], 7);
    answer.reply(202, &[], "");
}

#[tokio::test]
async fn a_cancelled_request_gets_no_answer() {
    let (mut server, mut client, _listening) = scripted("2025-11-25").await;
    client.say(&call(1)).await;
    let called = server.next().await;
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    client.say(&cancel).await;
    let cancelled = server.next().await;
    assert_eq!(cancelled.json()["params"]["requestId"], 1);
    cancelled.reply(202, &[], "");
    called.result(&json!({}));
    client.say(&call(2)).await;
    server.next().await.result(&json!({}));
    client.answer_to(&json!(2)).await;
    client.close();
    let last = client.ended();
    let (last, ()) = tokio::join!(last, async {
        server.next().await.reply(200, &[], "");
    });
    let answers = last.iter().filter(|message| message["id"] == 1);
    assert_eq!(answers.count(), 0, "{last:?}");
}

#[tokio::test]
async fn batches_are_answered_where_the_revision_has_them() {
    let (mut server, mut client, _listening) = scripted(BATCHING).await;
    client.say(&json!([list(1), call(2)])).await;
    for _ in 0..2 {
        server.next().await.result(&json!({"tools": []}));
    }
    let Some(Value::Array(answers)) = client.read().await else {
        panic!("not an array");
    };
    let mut ids: Vec<_> = answers.iter().map(|it| it["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [Some(1), Some(2)]);

    let (_server, mut client, _listening) = scripted("2025-11-25").await;
    client.say(&json!([list(1)])).await;
    let refused = client.read().await.unwrap();
    assert_eq!(refused["error"]["data"]["reason"], "batch", "{refused}");
}
