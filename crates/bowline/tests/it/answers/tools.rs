//! The operator's `tools` of a server: a list shows only what is allowed, and a call of anything else does not reach
//! the server, however either is written and over whatever it comes.

use bowline::config::{Config, ToolFilter};
use bowline_testbed::scripted::Scripted;
use bowline_testbed::stdio::over_sse::OverSse;
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client, sent};
use crate::kit::front::{Front, Site};
use crate::kit::gateway::{config, only};
use crate::kit::messages::{JSON, call, list};
use crate::kit::opened::{BATCHING, opened_speaking, opened_with};
use crate::kit::programs::{Tally, command, config_of};
use crate::kit::sse::Sse;
use crate::kit::wired::{Wired, call_of};

const GOOD: &str = r#"{ "name" : "good", "inputSchema":{"type":"object"}, "x": 1.50 }"#;
const BAD: &str = r#"{"title":"good","name":"b\u0061d"}"#;

fn deny(config: &mut Config, globs: &[&str]) {
    only(config).tools = Some(ToolFilter {
        allow: None,
        deny: globs.iter().map(ToString::to_string).collect(),
    });
}

fn without_bad(config: &mut Config) {
    deny(config, &["bad*"]);
}

/// The answer to a list, with these tools.
fn listing(id: u64, tools: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id}, "result":{{"nextCursor":"n","tools": {tools} ,"_meta":{{"a":1.0}}}}}}"#
    )
}

fn is_not_allowed(answer: &Answer) {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.code(), -32602, "{}", answer.text);
    let error = &answer.json()["error"];
    assert_eq!(error["data"]["reason"], "tool_not_allowed");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("not allowed here by the operator's configuration"));
}

#[tokio::test]
async fn a_list_shows_what_is_allowed_to_the_byte() {
    let (_gateway, mut server, client) = opened_with(without_bad).await;
    for page in [None, Some("n")] {
        let mut message = list(1);
        if let Some(cursor) = page {
            message["params"] = json!({"cursor": cursor});
        }
        let listed = client.send_to(&mut server, &message, |asked| {
            let all = format!("[{BAD}, {GOOD},\n{BAD},{GOOD}]");
            asked.reply(200, &[JSON], listing(1, &all));
        });
        let listed = listed.await;
        assert_eq!(listed.text, listing(1, &format!("[{GOOD},{GOOD}]")));
    }
    // What is all allowed is not touched, and errors are not lists.
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"bad"}}"#;
    let untouched = listing(1, &format!("[ {GOOD} ]"));
    for body in [untouched.as_str(), error] {
        let message = list(1);
        let listed = client.send_to(&mut server, &message, |asked| {
            asked.reply(200, &[JSON], body.to_owned());
        });
        assert_eq!(listed.await.text, body);
    }
    server.finish();
}

#[tokio::test]
async fn a_call_of_another_tool_does_not_reach_the_server() {
    let (_gateway, mut server, client) = opened_with(without_bad).await;
    let params = [
        r#"{"name":"bad","arguments":{}}"#,
        r#"{"name":"b\u0061d_2"}"#,
        r#"{"na\u006de":"bad"}"#,
        r#"{}"#,
    ];
    for params in params {
        let answer = sent(client.post_text(written(params))).await;
        is_not_allowed(&answer);
        assert_eq!(answer.json()["id"], 7);
    }
    // A server may run what comes without an id.
    let notice = json!({"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "bad"}});
    assert_eq!(client.send(&notice).await.status, 400);
    let message = call(8);
    let answer = client.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.json()["result"], json!({}));
    server.finish();
}

/// A call with these params.
fn written(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#)
}

/// Calls of `bad`, for some reader.
const TWO_READINGS: [&str; 8] = [
    r#"{"name":"good","name":"bad"}"#,
    r#"{"name":"bad","name":"good"}"#,
    r#"{"name":"good","n\u0061me":"bad"}"#,
    r#"{"name":"good","Name":"bad"}"#,
    r#"{"NAME":"bad"}"#,
    r#"{"name":"good","name\u0000":"bad"}"#,
    r#"{"name":"bad\u0000"}"#,
    r#"{"name":"bad\ud800"}"#,
];

fn is_ambiguous(answer: &Value) {
    let error = &answer["error"];
    assert_eq!(error["data"]["reason"], "not_json_rpc", "{answer}");
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("can be read in two ways: `name`"),
        "{message}"
    );
    assert_eq!(answer["id"], 7);
}

#[tokio::test]
async fn a_call_that_can_be_read_in_two_ways_reaches_no_server_over_any_front() {
    let (gateway, server, client) = opened_speaking(BATCHING, without_bad).await;
    let over_sse = Sse::open(&gateway).await;
    for params in TWO_READINGS {
        let answer = sent(client.post_text(written(params))).await;
        assert_eq!(answer.status, 400);
        is_ambiguous(&answer.json());
        let batch = sent(client.post_text(format!("[{}]", written(params)))).await;
        is_ambiguous(&batch.json()[0]);
        let answer = sent(over_sse.post(written(params))).await;
        assert_eq!(answer.status, 400);
        is_ambiguous(&answer.json());
    }
    server.finish();
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    without_bad(&mut config);
    let mut on_stdio = Wired::with(config).await;
    for params in TWO_READINGS {
        let line = written(params) + "\n";
        on_stdio.write(line.as_bytes()).await;
        is_ambiguous(&on_stdio.answer_to(&json!(7)).await);
    }
    server.finish();
}

#[tokio::test]
async fn streams_are_filtered_from_their_first_event_and_after_they_are_resumed() {
    let (_gateway, mut server, client) = opened_with(without_bad).await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&list(1))).await;
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"bad"}}"#;
    pen.write(format!("id: e1\ndata: {notice}\n\n"));
    let first = events.next().await;
    assert!(first.contains(notice), "{first}");
    pen.write("data: {\"tools\":[\"bad\"\n\n");
    pen.write(format!(
        "id: e2\ndata: {}\n\n",
        listing(1, &format!("[{BAD},{GOOD}]"))
    ));
    let shown = events.next().await;
    let expected = listing(1, &format!("[{GOOD}]"));
    assert!(shown.contains(&expected), "{shown}");
    drop((events, pen));
    // A client that takes it up again is shown the same; nobody knows here what it had asked.
    let mark = first.lines().find_map(|line| line.strip_prefix("id: "));
    let resumed = client.get().header("last-event-id", mark.unwrap());
    let (mut events, mut pen) = client.open_stream(&mut server, resumed).await;
    pen.write(format!(
        "id: e2\ndata: {}\n\n",
        listing(1, &format!("[{BAD},{GOOD}]"))
    ));
    let shown = events.next().await;
    assert!(shown.contains(&expected), "{shown}");
    // One that cannot be read in one way only is an error, and not a list.
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&list(3))).await;
    pen.write(format!(
        "data: {{\"jsonrpc\":\"2.0\",\"id\":3,\"result\":{{\"tools\":[],\"tools\":[{BAD}]}}}}\n\n"
    ));
    let shown = events.next().await;
    assert!(shown.contains("tools_not_filtered"), "{shown}");
    assert!(!shown.contains(BAD), "{shown}");
}

#[tokio::test]
async fn a_large_list_is_filtered_and_a_larger_one_is_not_shown() {
    let (_gateway, mut server, client) = opened_with(without_bad).await;
    let padding = "x".repeat(1 << 20);
    let large = format!(r#"{{"name":"good","description":"{padding}"}}"#);
    let all = format!("[{BAD},{}{BAD}]", format!("{large},").repeat(5));
    let expected = listing(1, &format!("[{}]", [large.as_str(); 5].join(",")));
    let message = list(1);
    let listed = client.send_to(&mut server, &message, |asked| {
        asked.reply(200, &[JSON], listing(1, &all));
    });
    assert!(listed.await.text == expected);
    let all = format!("[{BAD},{}{GOOD}]", format!("{large},").repeat(9));
    let listed = client.send_to(&mut server, &message, |asked| {
        asked.reply(200, &[JSON], listing(1, &all));
    });
    let listed = listed.await;
    assert_eq!((listed.status.as_u16(), listed.code()), (200, -32603));
    assert_eq!(
        listed.json()["error"]["data"]["reason"],
        "tools_not_filtered"
    );
}

#[tokio::test]
async fn members_of_a_batch_are_filtered_one_by_one() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, without_bad).await;
    let bad = call_of(2, "bad", &json!({}));
    let batch = json!([list(1), bad, call(3)]);
    let (answer, ()) = tokio::join!(client.send(&batch), async {
        for _ in 0..2 {
            let asked = server.next().await;
            match asked.rpc_method().as_str() {
                // An array is an answer, too.
                "tools/list" => {
                    let body = listing(1, &format!("[{BAD},{GOOD}]"));
                    asked.reply(200, &[JSON], format!("[{body}]"));
                }
                _ => asked.result(&json!({"ran": true})),
            }
        }
    });
    let members = answer.json();
    let of = |id: u64| {
        let mut members = members.as_array().unwrap().iter();
        members.find(|member| member["id"] == id).unwrap().clone()
    };
    assert_eq!(of(1)["result"]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(of(2)["error"]["code"], -32602);
    assert_eq!(of(3)["result"]["ran"], true);
    server.finish();
}

#[tokio::test]
async fn a_reload_counts_at_once() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let gateway = bowline::Gateway::start(config.clone()).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let (message, all) = (list(1), listing(1, &format!("[{BAD},{GOOD}]")));
    let mut listed = async || {
        let listed = client.send_to(&mut server, &message, |asked| {
            asked.reply(200, &[JSON], all.clone());
        });
        listed.await.text
    };
    assert_eq!(listed().await, all);
    without_bad(&mut config);
    gateway.reload(config.clone()).unwrap();
    assert_eq!(listed().await, listing(1, &format!("[{GOOD}]")));
    let bad = call_of(2, "bad", &json!({}));
    is_not_allowed(&client.send(&bad).await);
    only(&mut config).tools = None;
    gateway.reload(config).unwrap();
    assert_eq!(listed().await, all);
    let ran = client.send_to(&mut server, &bad, |asked| asked.result(&json!({})));
    assert_eq!(ran.await.json()["result"], json!({}));
}

/// The names that a client is shown.
async fn shown(front: &mut Front) -> Vec<String> {
    let listed: Value = front.ask(&list(1)).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

#[tokio::test]
async fn it_is_the_same_over_every_transport() {
    let sse_tally = Tally::default();
    let sse_server = OverSse::start(sse_tally.path()).await.unwrap();
    for over_sse in [false, true] {
        for front in ["http", "sse", "stdio"] {
            let own_tally = Tally::default();
            let (mut config, tally) = match over_sse {
                true => (config(&[("s", &sse_server.url())]), &sse_tally),
                false => (config_of(command(&own_tally.path())), &own_tally),
            };
            deny(&mut config, &["bump"]);
            let mut front = match front {
                "http" => Front::http(Site::alone(config).await),
                "sse" => Front::sse(Site::alone(config).await).await,
                _ => Front::stdio(config).await,
            };
            front.begin(&json!({})).await;
            let shown = shown(&mut front).await;
            assert!(
                !shown.is_empty() && !shown.contains(&"bump".to_owned()),
                "{shown:?}"
            );
            let refused = front.ask(&call_of(2, "bump", &json!({"key": "k"}))).await;
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            assert_eq!(tally.count("ran k"), 0);
            let ran = front
                .ask(&call_of(3, &shown[0], &json!({"key": "other"})))
                .await;
            assert!(ran["result"].is_object(), "{ran}");
            front.end().await;
        }
    }
}
