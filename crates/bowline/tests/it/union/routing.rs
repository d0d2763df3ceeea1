//! A message goes to the one server that it is for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bowline_testbed::answering::{Gate, Said};
use bowline_testbed::scripted::Pen;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::asking::stream;
use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::fake::{Fake, refusal, text, united, unmarked};
use crate::kit::messages::{call, cancel, initialize_message, list, note, request};
use crate::kit::opened::{BATCHING, tools};
use crate::kit::wait::until;

/// A call of this tool.
fn call_of(id: impl Into<Value>, tool: &str) -> Value {
    let mut call = call(id);
    call["params"]["name"] = tool.into();
    call
}

#[tokio::test]
async fn prompts_and_completions_go_to_their_server_under_its_own_name() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.result("prompts/get", json!({"messages": []}));
    let completed = json!({"completion": {"values": ["x"]}});
    b.result("completion/complete", completed.clone());
    b.result(
        "resources/templates/list",
        json!({"resourceTemplates": [{"uriTemplate": "f:///{p}", "name": "f"}]}),
    );
    let (_gateway, client) = united(&[&a, &b]).await;
    let got = request(
        1,
        "prompts/get",
        json!({"name": "b__p", "arguments": {"k": "v"}}),
    );
    assert_eq!(
        unmarked(client.send(&got).await.json())["result"],
        json!({"messages": []})
    );
    assert_eq!(
        b.params("prompts/get"),
        [json!({"name": "p", "arguments": {"k": "v"}})]
    );
    let argument = json!({"name": "k", "value": "v"});
    let by_name =
        json!({"ref": {"type": "ref/prompt", "name": "b__p", "title": "P"}, "argument": argument});
    let answer = client
        .send(&request(2, "completion/complete", by_name))
        .await;
    assert_eq!(unmarked(answer.json())["result"], completed);
    let asked = b.params("completion/complete").pop().unwrap();
    assert_eq!(
        asked["ref"],
        json!({"type": "ref/prompt", "name": "p", "title": "P"})
    );
    assert_eq!(a.count("initialize"), 0);
    // By a template, which is in no name: the server that lists it.
    let templates = request(3, "resources/templates/list", json!({}));
    let listed = client.send(&templates).await.json();
    assert_eq!(
        listed["result"]["resourceTemplates"][0]["uriTemplate"],
        "f:///{p}"
    );
    let by_uri = json!({"ref": {"type": "ref/resource", "uri": "f:///{p}"}, "argument": argument});
    let answer = client
        .send(&request(4, "completion/complete", by_uri.clone()))
        .await;
    assert_eq!(unmarked(answer.json())["result"], completed);
    assert_eq!(b.params("completion/complete").pop().unwrap(), by_uri);
    assert_eq!(a.count("completion/complete"), 0);
}

#[tokio::test]
async fn a_log_level_is_set_at_all_members_and_at_those_that_are_opened_later() {
    let (a, b, c) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("c").await,
    );
    c.declare(json!({"tools": {}}));
    let (_gateway, client) = united(&[&a, &b, &c]).await;
    assert_eq!(client.send(&call_of(1, "a__t")).await.status, 200);
    let level = request(2, "logging/setLevel", json!({"level": "warning"}));
    assert_eq!(client.send(&level).await.json()["result"], json!({}));
    assert_eq!(a.params("logging/setLevel"), [json!({"level": "warning"})]);
    assert_eq!(b.count("initialize"), 0);
    assert_eq!(client.send(&call_of(3, "b__t")).await.status, 200);
    assert_eq!(client.send(&call_of(4, "c__t")).await.status, 200);
    assert_eq!(b.params("logging/setLevel"), [json!({"level": "warning"})]);
    // It was set before the call.
    let order = [
        "initialize",
        "notifications/initialized",
        "logging/setLevel",
    ];
    assert_eq!(b.methods()[..3], order);
    assert_eq!(c.count("logging/setLevel"), 0);
}

#[tokio::test]
async fn a_log_level_that_is_set_while_a_member_is_opened_holds_there() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    a.on("logging/setLevel", move |seen| {
        seen.result(&json!({})).behind(&own)
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let level = |level: &str| request("level", "logging/setLevel", json!({"level": level}));
    assert_eq!(client.send(&level("debug")).await.status, 200);
    let calling = client.clone();
    let calling = JoinSet::from_iter([async move { calling.send(&call_of(1, "a__t")).await }]);
    until("the old level is being set", || gate.waiting() == 1).await;
    assert_eq!(client.send(&level("error")).await.status, 200);
    gate.open();
    calling.join_all().await;
    let set = a.params("logging/setLevel");
    assert_eq!(set.last(), Some(&json!({"level": "error"})), "{set:?}");
}

#[tokio::test]
async fn changed_roots_are_told_to_all_members_that_are_open() {
    let (a, b, c) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("c").await,
    );
    let (_gateway, client) = united(&[&a, &b, &c]).await;
    for tool in ["a__t", "b__t"] {
        assert_eq!(client.send(&call_of(1, tool)).await.status, 200);
    }
    let changed = "notifications/roots/list_changed";
    assert_eq!(client.send(&note(changed)).await.status, 202);
    assert_eq!(
        (a.count(changed), b.count(changed), c.count("initialize")),
        (1, 1, 0)
    );
}

#[tokio::test]
async fn a_cancel_goes_to_the_member_that_has_the_request() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    b.on("tools/call", move |seen| {
        seen.result(&text("late")).behind(&own)
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    assert_eq!(client.send(&call_of(1, "a__t")).await.status, 200);
    let running = client.clone();
    let running = JoinSet::from_iter([async move { running.send(&call_of("long", "b__t")).await }]);
    b.until("tools/call", 1).await;
    assert_eq!(client.send(&cancel("long")).await.status, 202);
    b.until("notifications/cancelled", 1).await;
    assert_eq!(b.params("notifications/cancelled")[0]["requestId"], "long");
    assert_eq!(a.count("notifications/cancelled"), 0);
    gate.open();
    running.join_all().await;
    // Of a request that is not there, nobody hears.
    assert_eq!(client.send(&cancel("never")).await.status, 202);
    assert_eq!(client.send(&call_of(2, "a__t")).await.status, 200);
    assert_eq!(
        (
            a.count("notifications/cancelled"),
            b.count("notifications/cancelled")
        ),
        (0, 1)
    );
}

#[tokio::test]
async fn a_request_is_cancelled_while_its_member_is_opened() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    b.on("initialize", move |seen| {
        let result = bowline_testbed::scripted::initialize_result();
        seen.result(&result).behind(&own)
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let calling = client.clone();
    let mut running =
        JoinSet::from_iter([async move { calling.send(&call_of("early", "b__t")).await }]);
    until("b is being opened", || gate.waiting() == 1).await;
    assert_eq!(client.send(&cancel("early")).await.status, 202);
    // It is over although the server still has not answered.
    let over = running.join_next().await.unwrap().unwrap();
    assert!(over.json().get("result").is_none(), "{over:?}");
    gate.open();
    let answer = client.send(&call_of(2, "b__t")).await;
    assert_eq!(unmarked(answer.json())["result"], text("b"));
    assert_eq!(
        b.params("tools/call").len(),
        1,
        "the first call did not run"
    );
}

/// A call with this token that streams its answer: its events at the client, the server's pen, and the token that the
/// server was given.
async fn streaming(client: &Client, fake: &Fake, id: u32, token: &Value) -> (Events, Pen, Value) {
    let pens = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&pens);
    fake.on("tools/call", move |seen| {
        let (said, mut pen) = Said::events();
        pen.write(": here\n\n");
        let given = seen.json()["params"]["_meta"]["progressToken"].clone();
        own.lock().push((pen, given));
        said
    });
    let mut call = call_of(id, &format!("{}__t", fake.name));
    call["params"]["_meta"] = json!({"progressToken": token});
    let events = stream(client, &call).await;
    let (pen, given) = pens.lock().pop().unwrap();
    (events, pen, given)
}

/// The next message, but for comments and news of lists.
async fn next(events: &mut Events) -> Value {
    loop {
        let (_, message) = events.next_message().await;
        let method = message["method"].as_str().unwrap_or_default();
        if !message.is_null() && !method.ends_with("/list_changed") {
            return message;
        }
    }
}

#[tokio::test]
async fn a_member_tells_the_progress_of_its_own_open_requests_and_of_no_other() {
    let (bank, weather) = (Fake::start("bank").await, Fake::start("weather").await);
    let (gateway, client) = united(&[&bank, &weather]).await;
    let mut heard = client.listen().await;
    let (mut of_bank, mut bank_pen, banks) = streaming(&client, &bank, 1, &json!(1)).await;
    let (mut of_weather, mut weather_pen, own) = streaming(&client, &weather, 2, &json!("w")).await;
    weather.until_listened(1).await;
    let progress = |token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    let data = |message: &str| format!("data: {message}\n\n");
    let fence = data(r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}"#);
    let (banks, own) = (banks.to_string(), own.to_string());
    let double = progress(&format!(r#"{own},"progressToken":1"#));
    let odd = progress("1").replace("notifications", r"Notific\u0061tions");
    for forged in [
        progress("1"),
        progress("1.0"),
        progress("\"1\""),
        progress("\"w\""),
        progress(&banks),
        double,
        odd,
        format!("[{},{}]", progress("1"), progress(&banks)),
    ] {
        weather.write(&data(&forged));
        weather_pen.write(data(&forged));
    }
    // Its own passes, on both streams, alone and in a batch, under the client's own token.
    weather.write(&data(&progress(&own)));
    weather_pen.write(data(&format!("[{},{}]", progress("1"), progress(&own))));
    bank_pen.write(data(&progress(&banks)));
    for (events, token) in [
        (&mut heard, json!("w")),
        (&mut of_weather, json!("w")),
        (&mut of_bank, json!(1)),
    ] {
        let told = next(events).await;
        assert_eq!(told["params"]["progressToken"], token, "{told}");
    }
    // After the answer there is none, although the server goes on.
    let answer = json!({"jsonrpc": "2.0", "id": 2, "result": text("weather")});
    weather_pen.write(data(&answer.to_string()));
    assert_eq!(next(&mut of_weather).await["id"], 2);
    weather_pen.write(data(&progress(&own)));
    weather_pen.write(fence.clone());
    weather.write(&data(&progress(&own)));
    weather.write(&fence);
    for events in [&mut of_weather, &mut heard] {
        let told = next(events).await;
        assert_eq!(told["method"], "notifications/message", "{told}");
    }
    // A client of the one server has the server's own words, and the server its token.
    let mut alone = Client::at(format!("http://{}/mcp/weather", gateway.listen()));
    alone.begin().await;
    weather.on("tools/call", |seen| {
        let message = seen.json();
        assert_eq!(message["params"]["_meta"]["progressToken"], "w");
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": text("weather")});
        let (said, mut pen) = Said::events();
        let told = note("notifications/progress");
        pen.write(format!("data: {told}\n\ndata: {answer}\n\n"));
        said
    });
    let mut call = call_of(3, "t");
    call["params"]["_meta"] = json!({"progressToken": "w"});
    assert_eq!(alone.send(&call).await.messages().len(), 2);
}

#[tokio::test]
async fn progress_of_a_call_comes_with_its_own_token() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.on("tools/call", |seen| {
        let message = seen.json();
        let token = &message["params"]["_meta"]["progressToken"];
        let mut progress = note("notifications/progress");
        progress["params"] = json!({"progressToken": token, "progress": 1});
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": text("b")});
        let (said, mut pen) = Said::events();
        pen.write(format!("data: {progress}\n\ndata: {answer}\n\n"));
        said
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut message = call_of(1, "b__t");
    message["params"]["_meta"] = json!({"progressToken": "mine"});
    let answer = client.send(&message).await;
    let [progress, result] = &answer.messages()[..] else {
        panic!("two messages: {answer:?}");
    };
    assert_eq!(progress["params"]["progressToken"], "mine");
    let result = unmarked(result.clone());
    assert_eq!((&result["id"], &result["result"]), (&json!(1), &text("b")));
}

#[tokio::test]
async fn the_messages_of_a_batch_go_each_where_it_belongs() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, mut client) = united(&[&a, &b]).await;
    let mut initialize = initialize_message();
    initialize["params"]["protocolVersion"] = BATCHING.into();
    let opened = client.initialize_as(&initialize).await;
    assert_eq!(opened.json()["result"]["protocolVersion"], BATCHING);
    let ping = json!({"jsonrpc": "2.0", "id": 4, "method": "ping"});
    let unknown = request(5, "no/such", json!({}));
    let batch = json!([
        call_of(1, "b__t"),
        call_of(2, "a__t"),
        note("notifications/roots/list_changed"),
        list(3),
        ping,
        unknown,
    ]);
    let answer = client.post_text(batch.to_string());
    let answer = crate::kit::client::sent(answer).await;
    let mut messages = answer.messages();
    if let [Value::Array(all)] = &messages[..] {
        messages = all.clone();
    }
    let to = |id: i64| {
        let mut found = messages.iter().filter(|message| message["id"] == id);
        let first = found.next().unwrap_or_else(|| panic!("{id}: {answer:?}"));
        assert!(found.next().is_none(), "{id} twice");
        first
    };
    assert_eq!(unmarked(to(1).clone())["result"], text("b"));
    assert_eq!(unmarked(to(2).clone())["result"], text("a"));
    assert_eq!(to(3)["result"]["tools"].as_array().unwrap().len(), 2);
    assert_eq!(to(4)["result"], json!({}));
    assert_eq!(to(5)["error"]["code"], -32601);
    assert_eq!(messages.len(), 5);
    let notes = json!([note("notifications/roots/list_changed"), cancel(99)]);
    let told = crate::kit::client::sent(client.post_text(notes.to_string())).await;
    assert_eq!(told.status, 202);
}

#[tokio::test]
async fn what_nobody_knows_is_refused_and_no_server_is_asked() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    assert_eq!(client.send(&list(1)).await.status, 200);
    let refused = [
        (call_of(1, "c__t"), -32602),
        (call_of(2, "t"), -32602),
        (call_of(3, "a_t"), -32602),
        (call_of(4, ""), -32602),
        (request(5, "tools/call", json!({"arguments": {}})), -32602),
        (request(6, "tools/call", json!({"name": 7})), -32602),
        (request(7, "prompts/get", json!({"name": "p"})), -32602),
        (request(8, "resources/read", json!({})), -32602),
        (
            request(9, "completion/complete", json!({"ref": {}})),
            -32602,
        ),
        (request(10, "logging/setLevel", json!({})), -32602),
        (request(11, "tasks/list", json!({})), -32601),
        (request(12, "a__t", json!({})), -32601),
    ];
    for (message, code) in refused {
        let answer = client.send(&message).await;
        assert_eq!(answer.code(), code, "{message}: {}", answer.text);
        assert_eq!(answer.json()["id"], message["id"]);
    }
    for fake in [&a, &b] {
        for method in [
            "tools/call",
            "prompts/get",
            "resources/read",
            "completion/complete",
        ] {
            assert_eq!(fake.count(method), 0, "{} {method}", fake.name);
        }
    }
    // A server says itself that it has no such tool.
    a.on("tools/call", |seen| refusal(seen, -32602, "no such tool"));
    let answer = client.send(&call_of(13, "a__none")).await;
    assert_eq!(answer.json()["error"]["message"], "no such tool");
}

#[tokio::test]
async fn a_members_safe_call_is_answered_at_every_loss_without_a_list() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.result("tools/list", tools(true));
    let is_killed = Arc::new(AtomicBool::new(false));
    let dead = Arc::new(Mutex::new(Vec::new()));
    let (killed, died) = (Arc::clone(&is_killed), Arc::clone(&dead));
    a.on("tools/call", move |seen| {
        let session = seen.header("mcp-session-id").to_owned();
        if !killed.swap(false, Ordering::Relaxed) {
            return seen.result(&text(&session));
        }
        died.lock().push(session);
        // Its stream ends without an answer.
        Said::events().0
    });
    a.on("ping", move |seen| {
        let is_dead = dead
            .lock()
            .iter()
            .any(|id| id == seen.header("mcp-session-id"));
        match is_dead {
            true => Said::status(404),
            false => seen.result(&json!({})),
        }
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let message = call_of(1, "a__t");
    for round in 1..=3 {
        for _ in 0..2 {
            assert_eq!(client.send(&message).await.status, 200);
            a.until("tools/list", round).await;
        }
        let before = a.count("tools/call");
        is_killed.store(true, Ordering::Relaxed);
        let answer = client.send(&message).await;
        let expected = text(&format!("a-{}", round + 1));
        let answered = unmarked(answer.messages().remove(0));
        assert_eq!(answered["result"], expected, "{answer:?}");
        assert_eq!(a.count("tools/call"), before + 2);
    }
    assert_eq!(b.count("tools/list"), 0);
}
