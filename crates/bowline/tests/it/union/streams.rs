//! What all servers say reaches the client on one stream, which resumes as one, and answers go to whoever asked.

use bowline_testbed::answering::Said;
use serde_json::{Value, json};

use crate::kit::client::{Client, sent};
use crate::kit::events::Events;
use crate::kit::fake::{Fake, begun, names, text, united, unmarked};
use crate::kit::messages::{list, note};

/// A log message with this text.
fn log(text: &str) -> Value {
    let mut log = note("notifications/message");
    log["params"] = json!({"level": "info", "data": text});
    log
}

/// Opens the members with these servers, and waits until each is listened to.
async fn listened(client: &Client, fakes: &[&Fake]) -> Events {
    let events = client.listen().await;
    for fake in fakes {
        let tool = format!("{}__t", fake.name);
        assert_eq!(client.call(1, &tool, &json!({})).await.status, 200);
        fake.until_listened(1).await;
    }
    events
}

/// The next message that is not about lists, and its event's id.
async fn next(events: &mut Events) -> (Option<String>, Value) {
    loop {
        let (id, message) = events.next_message().await;
        let method = message["method"].as_str().unwrap_or_default();
        if !method.ends_with("/list_changed") && !message.is_null() {
            return (id, message);
        }
    }
}

#[tokio::test]
async fn two_servers_speak_on_one_stream_and_one_id_resumes_both() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    a.emit(Some("a-one"), &log("from a"));
    let (_, message) = next(&mut events).await;
    assert_eq!(message["params"]["data"], "from a");
    b.emit(Some("b-one"), &log("from b"));
    let (last, message) = next(&mut events).await;
    assert_eq!(message["params"]["data"], "from b");
    let last = last.expect("an event id");
    assert!(!last.contains("b-one") && !last.contains("a-one"), "{last}");
    drop(events);
    a.until_listened(0).await;
    b.until_listened(0).await;
    let resumed = client.get().header("last-event-id", &last);
    let mut events = Events::new(resumed.send().await.unwrap());
    a.until_listened(1).await;
    b.until_listened(1).await;
    for (fake, own) in [(&a, "a-one"), (&b, "b-one")] {
        let asked = fake.asked("GET").pop().unwrap();
        assert_eq!(asked.header("last-event-id"), own);
    }
    a.emit(None, &log("without an id"));
    let (id, message) = next(&mut events).await;
    assert_eq!(message["params"]["data"], "without an id");
    assert_eq!(id, None);
}

#[tokio::test]
async fn a_second_stream_takes_the_place_of_the_first() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let first = listened(&client, &[&a]).await;
    let mut second = client.listen().await;
    drop(first.all().await);
    a.until_listened(1).await;
    a.emit(None, &log("once"));
    let (_, message) = next(&mut second).await;
    assert_eq!(message["params"]["data"], "once");
}

#[tokio::test]
async fn the_stream_of_a_call_is_resumed_at_its_own_server() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    b.on("tools/call", |_| {
        let (said, mut pen) = Said::events();
        pen.write(format!("id: call-1\ndata: {}\n\n", log("begun")));
        // Held open for as long as the test runs.
        std::mem::forget(pen);
        said
    });
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut message = crate::kit::messages::call(7);
    message["params"]["name"] = "b__t".into();
    let mut events = Events::new(client.post(&message).send().await.unwrap());
    let (id, begun) = events.next_message().await;
    assert_eq!(begun["params"]["data"], "begun");
    drop(events);
    b.on("GET", |seen| {
        assert_eq!(seen.header("last-event-id"), "call-1");
        let answer = json!({"jsonrpc": "2.0", "id": 7, "result": text("resumed")});
        let (said, mut pen) = Said::events();
        pen.write(format!("id: call-2\ndata: {answer}\n\n"));
        said
    });
    let resumed = client.get().header("last-event-id", id.unwrap());
    let mut events = Events::new(resumed.send().await.unwrap());
    let (_, answer) = next(&mut events).await;
    assert_eq!(unmarked(answer)["result"], text("resumed"));
    assert_eq!((a.count("GET"), b.count("GET")), (0, 1));
}

#[tokio::test]
async fn forged_and_foreign_event_ids_are_refused() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a]).await;
    a.emit(Some("own"), &log("x"));
    let own = next(&mut events).await.0.unwrap();
    drop(events);
    a.until_listened(0).await;
    let other = begun(&gateway).await;
    for (client, id) in [
        (&client, "made-up".to_owned()),
        (&client, "own".to_owned()),
        (&client, format!("{own},made-up")),
        (&client, format!("{own},")),
        (&other, own.clone()),
    ] {
        let answer = sent(client.get().header("last-event-id", &id)).await;
        assert_eq!(answer.status, 400, "{id}: {answer:?}");
    }
    let good = client.get().header("last-event-id", &own).send().await;
    assert_eq!(good.unwrap().status(), 200);
}

#[tokio::test]
async fn two_servers_ask_under_the_same_id_and_each_gets_its_own_answer() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    let question = |who: &str| {
        json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage",
            "params": {"maxTokens": 1, "messages": [], "systemPrompt": who, "_meta": {"progressToken": 1}}})
    };
    a.emit(None, &question("a"));
    b.emit(None, &question("b"));
    let mut asked = Vec::new();
    for _ in 0..2 {
        asked.push(next(&mut events).await.1);
    }
    assert_ne!(asked[0]["id"], asked[1]["id"]);
    // Answered in the other order, with progress before.
    for question in asked.iter().rev() {
        let who = &question["params"]["systemPrompt"];
        let mut progress = note("notifications/progress");
        let token = &question["params"]["_meta"]["progressToken"];
        progress["params"] = json!({"progressToken": token, "progress": 1, "message": who});
        assert_eq!(client.send(&progress).await.status, 202);
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"model": who}});
        assert_eq!(client.send(&answer).await.status, 202);
    }
    for fake in [&a, &b] {
        fake.until("a response", 1).await;
        let answers = fake.asked("a response");
        assert_eq!(answers.len(), 1);
        assert_eq!(
            answers[0].json(),
            json!({"jsonrpc": "2.0", "id": 1, "result": {"model": fake.name}})
        );
        fake.until("notifications/progress", 1).await;
        let progress = fake.params("notifications/progress");
        assert_eq!(
            progress,
            [json!({"progressToken": 1, "progress": 1, "message": fake.name})]
        );
    }
}

#[tokio::test]
async fn answers_that_nobody_asked_for_reach_no_server() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    let roots = json!({"jsonrpc": "2.0", "id": "r", "method": "roots/list"});
    a.emit(None, &roots);
    let (_, question) = next(&mut events).await;
    let other = begun(&gateway).await;
    assert_eq!(other.call(1, "a__t", &json!({})).await.status, 200);
    let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    // Another attachment's mark, the server's own id, and something made up.
    for (client, id) in [
        (&other, question["id"].clone()),
        (&client, json!("r")),
        (&client, json!(1)),
    ] {
        let refused = client.send(&answer(&id)).await;
        assert_eq!(refused.status, 400, "{id}: {refused:?}");
    }
    assert_eq!(a.count("a response") + b.count("a response"), 0);
    assert_eq!(client.send(&answer(&question["id"])).await.status, 202);
    a.until("a response", 1).await;
    assert_eq!(a.asked("a response")[0].json()["id"], "r");
    assert_eq!(b.count("a response"), 0);
}

#[tokio::test]
async fn a_server_takes_its_request_back_by_the_id_that_the_client_knows() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    let roots = json!({"jsonrpc": "2.0", "id": 5, "method": "roots/list"});
    b.emit(None, &roots);
    let (_, question) = next(&mut events).await;
    let mut cancelled = note("notifications/cancelled");
    cancelled["params"] = json!({"requestId": 5});
    b.emit(None, &cancelled);
    let (_, taken_back) = next(&mut events).await;
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    // The same words of another server are about a request of its own.
    a.emit(None, &cancelled);
    let (_, other) = next(&mut events).await;
    assert_ne!(other["params"]["requestId"], question["id"]);
}

#[tokio::test]
async fn a_flood_of_changed_lists_is_told_a_few_times() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    let changed = note("notifications/tools/list_changed");
    for _ in 0..500 {
        a.emit(None, &changed);
    }
    a.emit(None, &log("after the flood"));
    let (mut told, began) = (0, tokio::time::Instant::now());
    loop {
        let (_, message) = events.next_message().await;
        match message["method"].as_str() {
            Some("notifications/tools/list_changed") => told += 1,
            Some("notifications/message") => break,
            _ => {}
        }
    }
    let most = 2 + began.elapsed().as_secs();
    assert!(told <= most, "told {told} times");
    // The last change is told, too.
    b.emit(None, &changed);
    loop {
        let (_, message) = events.next_message().await;
        if message == changed {
            return;
        }
    }
}

#[tokio::test]
async fn a_server_that_imitates_another_gets_nothing() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let own = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    b.result("tools/list", json!({"tools": [own("a__t"), own("t")]}));
    for fake in [&a, &b] {
        fake.result(
            "resources/list",
            json!({"resources": [{"uri": "x:a", "name": "r"}]}),
        );
        let name = fake.name;
        fake.on("resources/read", move |seen| {
            seen.result(&json!({"contents": [{"uri": "x:a", "text": name}]}))
        });
    }
    let (_gateway, client) = united(&[&a, &b]).await;
    assert_eq!(
        names(&client.send(&list(1)).await),
        ["a__t", "b__a__t", "b__t"]
    );
    let mut events = listened(&client, &[&a, &b]).await;
    assert_eq!(a.count("tools/call"), 1);
    let calls = b.count("tools/call");
    // Its URI: neither answers for the other.
    let read =
        json!({"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": {"uri": "x:a"}});
    assert_eq!(client.send(&read).await.code(), -32602);
    assert_eq!(
        (b.count("resources/read"), b.count("tools/call")),
        (0, calls)
    );
    // Its requests, by the id that the client knows: it is another request, and the answer to the first is a's.
    let roots = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "method": "roots/list"});
    a.emit(Some("a-one"), &roots(&json!(1)));
    let (mark, question) = next(&mut events).await;
    let mark = mark.unwrap();
    b.emit(Some(&mark), &roots(&question["id"]));
    let (joined, imitated) = next(&mut events).await;
    assert_ne!(imitated["id"], question["id"]);
    let answer = |id: &Value| json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
    assert_eq!(client.send(&answer(&question["id"])).await.status, 202);
    a.until("a response", 1).await;
    assert_eq!(b.count("a response"), 0);
    assert_eq!(client.send(&answer(&imitated["id"])).await.status, 202);
    b.until("a response", 1).await;
    assert_eq!(b.asked("a response")[0].json()["id"], question["id"]);
    assert_eq!(a.count("a response"), 1);
    // Its position in the stream: each resumes from its own.
    drop(events);
    a.until_listened(0).await;
    b.until_listened(0).await;
    let resumed = client.get().header("last-event-id", joined.unwrap());
    let _events = Events::new(resumed.send().await.unwrap());
    a.until_listened(1).await;
    b.until_listened(1).await;
    assert_eq!(
        a.asked("GET").pop().unwrap().header("last-event-id"),
        "a-one"
    );
    assert_eq!(b.asked("GET").pop().unwrap().header("last-event-id"), mark);
}

#[tokio::test]
async fn a_servers_stream_that_ends_is_opened_again_where_it_was() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let (_gateway, client) = united(&[&a, &b]).await;
    let mut events = listened(&client, &[&a, &b]).await;
    a.emit(Some("a-one"), &log("first"));
    next(&mut events).await;
    a.end_streams();
    b.emit(None, &log("meanwhile"));
    assert_eq!(next(&mut events).await.1["params"]["data"], "meanwhile");
    a.until("GET", 2).await;
    a.until_listened(1).await;
    assert_eq!(a.asked("GET")[1].header("last-event-id"), "a-one");
    a.emit(Some("a-two"), &log("second"));
    assert_eq!(next(&mut events).await.1["params"]["data"], "second");
}
