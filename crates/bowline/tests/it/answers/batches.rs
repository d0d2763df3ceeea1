//! Batches: only in sessions of 2025-03-26, each member an exchange of its own, joined again.

use bowline_testbed::scripted::{Asked, Pen, Scripted};
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client, sent};
use crate::kit::events::Events;
use crate::kit::messages::{JSON, call, initialize_message, note, result};
use crate::kit::opened::{BATCHING, opened, opened_speaking};

/// The requests of the server's side, by their JSON-RPC ids.
async fn asked_by_id<const N: usize>(server: &mut Scripted, ids: [u64; N]) -> [Asked; N] {
    let mut asked = Vec::new();
    for _ in 0..N {
        asked.push(server.next().await);
    }
    ids.map(|id| {
        let at = asked.iter().position(|asked| asked.json()["id"] == id);
        asked.swap_remove(at.expect("each member alone"))
    })
}

async fn sent_text(client: &Client, body: &str) -> Answer {
    sent(client.post_text(body.to_owned())).await
}

#[tokio::test]
async fn whole_answers_make_one_array_of_the_servers_own_bytes() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let first = "{ \"method\":\"tools/list\" ,\"id\":1.0,\"jsonrpc\":\"2.0\" }";
    let second = "{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"method\":\"ping\",\"x\":[1.50]}";
    let one = " {\"jsonrpc\":\"2.0\", \"id\":1.0,\"result\":{\"n\":1.0}}\n";
    let two = "{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"error\":{\"code\":-1,\"message\":\"\\u0041\"}}";
    let body = format!(" [{first} , {second}]\n");
    let (answer, ()) = tokio::join!(sent_text(&client, &body), async {
        let mut asked = [server.next().await, server.next().await];
        asked.sort_by_key(|asked| asked.body.len());
        let [a, b] = asked;
        assert_eq!(
            (&a.body[..], &b.body[..]),
            (first.as_bytes(), second.as_bytes())
        );
        for asked in [&a, &b] {
            assert_eq!(asked.header("mcp-session-id"), "u1");
        }
        // Even an error's status is only its member's.
        b.reply(400, &[JSON], two);
        a.reply(200, &[JSON], one);
    });
    assert_eq!(answer.status, 200);
    assert_eq!(answer.headers["content-type"], "application/json");
    let either = [format!("[{one},{two}]"), format!("[{two},{one}]")];
    assert!(either.contains(&answer.text), "{}", answer.text);
    server.finish();
}

#[tokio::test]
async fn what_nobody_answers_is_202_and_sent_before_what_follows() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = json!([
        note("notifications/initialized"),
        note("notifications/roots/list_changed")
    ]);
    let (answer, ()) = tokio::join!(client.send(&batch), async {
        for method in [
            "notifications/initialized",
            "notifications/roots/list_changed",
        ] {
            let asked = server.next().await;
            assert_eq!(asked.rpc_method(), method);
            asked.reply(202, &[], "");
        }
    });
    assert_eq!((answer.status.as_u16(), answer.text.as_str()), (202, ""));

    let batch = json!([note("notifications/initialized"), call(1)]);
    let (answer, ()) = tokio::join!(client.send(&batch), async {
        server.next().await.reply(202, &[], "");
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.json(), json!([result(1)]));
    server.finish();
}

#[tokio::test]
async fn if_one_streams_all_stream_without_event_ids() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = json!([call(1), call(2), call(3)]);
    let (response, (mut one, two, three)) = tokio::join!(client.post(&batch).send(), async {
        let [one, two, three] = asked_by_id(&mut server, [1, 2, 3]).await;
        (one.events(), two, three.events())
    });
    // The stream begins although the second has not been answered.
    let mut events = Events::new(response.unwrap());
    assert_eq!(events.response.headers()["x-accel-buffering"], "no");
    let progress = note("notifications/progress");
    one.write(format!(
        ": hi\n\nid: 9\nretry: 5\nevent: message\ndata: {progress}\n\n"
    ));
    assert_eq!(events.next().await, format!("data: {progress}\n\n"));
    let ask = json!({"jsonrpc": "2.0", "id": 42, "method": "roots/list"});
    one.write(format!("id: 10\ndata: {ask}\n\n"));
    let (id, asked) = events.next_message().await;
    assert_eq!((id, asked["method"].as_str()), (None, Some("roots/list")));
    assert_ne!(asked["id"], 42);
    two.result(&json!({}));
    assert_eq!(events.next_message().await, (None, result(2)));
    let mut three: Pen = three;
    three.write(format!("data: {}\n\n", result(3)));
    assert_eq!(events.next_message().await, (None, result(3)));
    drop(three);
    // The mark of the server's request is good, and may come back in a batch.
    let batch = json!([{"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}}]);
    let accepted = client.send_to(&mut server, &batch, |asked| {
        assert_eq!(asked.json()["id"], 42);
        asked.reply(202, &[], "");
    });
    assert_eq!(accepted.await.status, 202);
    one.write(format!("data: {}\n\n", result(1)));
    assert_eq!(events.next_message().await, (None, result(1)));
    drop(one);
    events.ends_cleanly().await;
    server.finish();
}

#[tokio::test]
async fn one_members_fault_is_its_own() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let body = json!([call(1), 7, {"jsonrpc": "2.0"}, call(2), call(3)]);
    let (answer, ()) = tokio::join!(client.send(&body), async {
        let [one, two, three] = asked_by_id(&mut server, [1, 2, 3]).await;
        drop(one);
        two.result(&json!({}));
        three.reply(500, &[("content-type", "text/html")], "<h1>");
    });
    assert_eq!(answer.status, 200);
    let answers = answer.json();
    let of = |id: Value| -> Vec<&Value> {
        let answers = answers.as_array().unwrap().iter();
        answers.filter(|answer| answer["id"] == id).collect()
    };
    assert_eq!(answers.as_array().unwrap().len(), 5);
    assert_eq!(of(json!(1))[0]["error"]["code"], -31001);
    assert_eq!(of(json!(2)), [&result(2)]);
    assert_eq!(of(json!(3))[0]["error"]["code"], -31001);
    let malformed = of(Value::Null);
    assert_eq!(malformed.len(), 2);
    for error in malformed {
        assert!(error.as_object().unwrap().contains_key("id"));
        assert_eq!(error["error"]["code"], -32600);
    }
    // What is left is the question whether the session lives.
    assert_eq!(server.next().await.rpc_method(), "ping");
}

#[tokio::test]
async fn a_member_whose_stream_breaks_does_not_break_the_others() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = json!([call(1), call(2), call(3)]);
    let (response, [one, two, mut three]) = tokio::join!(client.post(&batch).send(), async {
        asked_by_id(&mut server, [1, 2, 3]).await.map(Asked::events)
    });
    let mut events = Events::new(response.unwrap());
    one.cut();
    let (_, broken) = events.next_message().await;
    assert_eq!(
        (&broken["id"], &broken["error"]["code"]),
        (&json!(1), &json!(-31001))
    );
    // An end without an answer is no answer, and this client could not resume.
    drop(two);
    let (_, ended) = events.next_message().await;
    assert_eq!(
        (&ended["id"], &ended["error"]["code"]),
        (&json!(2), &json!(-31001))
    );
    three.write(format!("data: {}\n\n", result(3)));
    assert_eq!(events.next_message().await.1, result(3));
    three.cut();
    events.ends_cleanly().await;
    // Nobody knows what became of the session, so it is asked.
    assert_eq!(server.next().await.rpc_method(), "ping");
}

#[tokio::test]
async fn failures_without_an_id_to_answer_to() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let stray = json!({"jsonrpc": "2.0", "id": "made-up", "result": {}});
    let answer = client.send(&json!([stray])).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (400, -32600));
    assert!(answer.json().get("id").is_none());
    // Beside a request nobody hears of them: JSON-RPC has no place to say so.
    let batch = json!([stray, call(1)]);
    let answer = client.send_to(&mut server, &batch, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.json(), json!([result(1)]));
    server.finish();
}

#[tokio::test]
async fn batches_that_are_refused_whole() {
    let (gateway, server, client) = opened_speaking(BATCHING, |_| {}).await;
    let many = |count: usize| Value::from(vec![note("n"); count]).to_string();
    let opening = json!([note("n"), initialize_message()]).to_string();
    for (body, code, reason) in [
        ("[]", -32600, "empty_batch"),
        (" \r\n[ ]", -32600, "empty_batch"),
        (&opening, -32600, "initialize_in_batch"),
        (&many(101), -32600, "batch_too_large"),
        ("[", -32700, "not_json"),
        ("[{}", -32700, "not_json"),
        ("[{}] x", -32700, "not_json"),
        ("\u{b}[]", -32700, "not_json"),
    ] {
        let answer = sent_text(&client, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, code),
            "{body}"
        );
        assert_eq!(answer.json()["error"]["data"]["reason"], reason, "{body}");
        assert!(answer.json().get("id").is_none());
    }
    let mut nobody = client.clone();
    nobody.session = None;
    for batch in [json!([call(1)]), json!([initialize_message()]), json!([])] {
        let answer = nobody.send(&batch).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (400, -32600));
        assert_eq!(answer.json()["error"]["data"]["reason"], "batch");
    }
    let typed = client
        .request(reqwest::Method::POST)
        .header("accept", "*/*")
        .header("content-type", "text/plain")
        .body(json!([call(1)]).to_string());
    assert_eq!(typed.send().await.unwrap().status(), 415);
    server.finish();
    drop(gateway);

    let (_gateway, server, later) = opened().await;
    for body in ["[]", " \t\r\n[", &json!([call(1)]).to_string(), &opening] {
        let answer = sent_text(&later, body).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code()),
            (400, -32600),
            "{body}"
        );
    }
    server.finish();
}

#[tokio::test]
async fn a_hundred_members_are_served() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch: Vec<Value> = (0..100).map(call).collect();
    let batch = Value::from(batch);
    let (answer, ()) = tokio::join!(client.send(&batch), async {
        for _ in 0..100 {
            server.next().await.result(&json!({}));
        }
    });
    let mut ids: Vec<u64> = answer
        .json()
        .as_array()
        .unwrap()
        .iter()
        .map(|answer| answer["id"].as_u64().unwrap())
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..100).collect::<Vec<_>>());
    server.finish();
}

#[tokio::test]
async fn every_member_counts_as_a_stream() {
    let (_gateway, mut server, client) =
        opened_speaking(BATCHING, |config| config.limits.streams = 1).await;
    let batch = json!([call(1), call(2)]);
    let (response, (served, pen)) = tokio::join!(client.post(&batch).send(), async {
        let asked = server.next().await;
        (asked.json()["id"].clone(), asked.events())
    });
    let mut events = Events::new(response.unwrap());
    let (_, refused) = events.next_message().await;
    assert_ne!(refused["id"], served);
    assert_eq!(refused["error"]["code"], -31005);
    drop(pen);
    server.finish();
}

#[tokio::test]
async fn what_was_sent_goes_on_when_the_client_leaves() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = json!([call(1), call(2)]);
    let (response, (mut one, two)) = tokio::join!(client.post(&batch).send(), async {
        let [one, two] = asked_by_id(&mut server, [1, 2]).await;
        (one.events(), two)
    });
    drop(response);
    // Until the gateway has noticed, writing would prove nothing; a whole exchange later it has.
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    client
        .send_to(&mut server, &ping, |asked| asked.result(&json!({})))
        .await;
    one.write(": still there?\n\n");
    let mut two = two.events();
    for pen in [&mut one, &mut two] {
        pen.write(format!("data: {}\n\n", note("notifications/progress")));
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(pen.is_open(), "read to its end");
    }
    server.finish();
}

#[tokio::test]
async fn only_some_requests_of_a_batch_run_at_once() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = Value::from((0..20).map(call).collect::<Vec<Value>>());
    let (answer, ()) = tokio::join!(client.send(&batch), async {
        let mut asked = Vec::new();
        for _ in 0..8 {
            asked.push(server.next().await);
        }
        let more = tokio::time::timeout(std::time::Duration::from_millis(200), server.next()).await;
        assert!(more.is_err(), "a ninth");
        asked.into_iter().for_each(|asked| asked.result(&json!({})));
        for _ in 8..20 {
            server.next().await.result(&json!({}));
        }
    });
    assert_eq!(answer.json().as_array().unwrap().len(), 20);
    server.finish();
}

/// The client reads nothing, and has asked for far more than should be held for it.
#[tokio::test]
async fn large_answers_wait_for_the_client_and_not_in_memory() {
    const LARGE: usize = 3 * 1024 * 1024;
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |_| {}).await;
    let batch = Value::from((0..8).map(call).collect::<Vec<Value>>());
    let (response, ()) = tokio::join!(client.post(&batch).send(), async {
        for _ in 0..8 {
            let asked = server.next().await;
            asked.result(&json!({"text": "x".repeat(LARGE)}));
        }
    });
    let response = response.unwrap();
    // The first of them is more than waits for the others.
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut events = Events::new(response);
    let mut ids = Vec::new();
    for _ in 0..8 {
        let (_, message) = events.next_message().await;
        assert_eq!(message["result"]["text"].as_str().unwrap().len(), LARGE);
        ids.push(message["id"].as_u64().unwrap());
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
    server.finish();
}
