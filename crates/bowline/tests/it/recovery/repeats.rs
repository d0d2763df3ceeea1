//! A request that goes again: under an id of its own, which nobody but the server ever sees.

use std::time::Duration;

use bowline::config::Config;
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::gateway::only;
use crate::kit::messages::call;
use crate::kit::opened::opened_shown;

/// Breaks what is asked, answers the ping, and returns the repeat.
async fn repeat_of(server: &mut Scripted, asked: Asked) -> Asked {
    drop(asked);
    let ping = server.next().await;
    assert_eq!(ping.rpc_method(), "ping");
    ping.result(&json!({}));
    server.next().await
}

fn cancel(id: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id, "reason": "enough"}})
}

fn event(id: &str, message: &Value) -> String {
    format!("id: {id}\ndata: {message}\n\n")
}

#[tokio::test]
async fn every_repeat_has_an_id_of_its_own() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    // Two requests whose ids differ in kind only.
    for id in [json!(7), json!("7")] {
        let message = call(id.clone());
        let (answer, ()) = tokio::join!(client.send(&message), async {
            let first = server.next().await;
            let mut seen = vec![first.json()["id"].clone()];
            let second = repeat_of(&mut server, first).await;
            seen.push(second.json()["id"].clone());
            let third = repeat_of(&mut server, second).await;
            seen.push(third.json()["id"].clone());
            assert_eq!(seen[0], id);
            assert!(seen[1] != seen[0] && seen[2] != seen[0] && seen[1] != seen[2]);
            assert_eq!(third.json()["params"], message["params"]);
            third.result(&json!({}));
        });
        assert_eq!(answer.json()["id"], id);
    }
    server.finish();
}

/// The client cancels, and the server is told for the repeat, and for the first attempt, which may still run.
async fn cancelled(client: &Client, server: &mut Scripted, repeat: &Value) {
    let message = cancel(&json!(7));
    let (told, ()) = tokio::join!(client.send(&message), async {
        let mut told = Vec::new();
        for _ in 0..2 {
            let asked = server.next().await;
            assert_eq!(asked.rpc_method(), "notifications/cancelled");
            told.push(asked.json()["params"]["requestId"].clone());
            asked.reply(202, &[], "");
        }
        assert!(
            told.contains(repeat) && told.contains(&json!(7)),
            "{told:?}"
        );
    });
    assert_eq!(told.status, 202);
}

#[tokio::test]
async fn a_cancel_reaches_the_repeat() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let first = server.next().await;
        let again = repeat_of(&mut server, first).await;
        cancelled(&client, &mut server, &again.json()["id"]).await;
        again.result(&json!({}));
    });
    assert_eq!(
        answer.json()["id"],
        7,
        "what the server answers all the same"
    );
    server.finish();
}

#[tokio::test]
async fn a_cancel_reaches_every_attempt() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (request, cancel) = (client.post(&call(7)).send(), cancel(&json!(7)));
    let cancelling = async {
        let first = server.next().await;
        let mut ids = vec![first.json()["id"].clone()];
        let second = repeat_of(&mut server, first).await;
        ids.push(second.json()["id"].clone());
        let third = repeat_of(&mut server, second).await;
        ids.push(third.json()["id"].clone());
        let (told, ()) = tokio::join!(client.send(&cancel), async {
            for _ in 0..3 {
                let asked = server.next().await;
                let id = asked.json()["params"]["requestId"].clone();
                let place = ids.iter().position(|one| *one == id);
                ids.remove(place.unwrap_or_else(|| panic!("{id} is none of {ids:?}")));
                asked.reply(202, &[], "");
            }
        });
        assert_eq!(told.status, 202);
        third.result(&json!({}));
    };
    let (answered, ()) = tokio::join!(request, cancelling);
    drop(answered.unwrap());
    server.finish();
}

#[tokio::test]
async fn a_cancel_reaches_a_repeat_that_streams() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (response, mut pen, ours) = {
        let request = client.post(&call(7)).send();
        let (response, (pen, ours)) = tokio::join!(request, async {
            let first = server.next().await;
            let again = repeat_of(&mut server, first).await;
            let ours = again.json()["id"].clone();
            (again.events(), ours)
        });
        (response.unwrap(), pen, ours)
    };
    let mut events = Events::new(response);
    cancelled(&client, &mut server, &ours).await;
    let answer = json!({"jsonrpc": "2.0", "id": ours, "result": {}});
    pen.write(format!("data: {answer}\n\n"));
    assert_eq!(events.next_message().await.1["id"], 7);
    server.finish();
}

#[tokio::test]
async fn a_request_that_was_cancelled_while_it_streamed_does_not_go_again() {
    let (_gateway, mut server, client) = opened_shown(|_| {}).await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "one");
    let cancel = cancel(&json!(7));
    client
        .send_to(&mut server, &cancel, |asked| asked.reply(202, &[], ""))
        .await;
    pen.cut();
    let (_, told) = events.next_message().await;
    assert!(told["error"]["code"].is_i64(), "{told}");
    // The session is asked after; then comes what the client says next, and no repeat.
    server.next().await.result(&json!({}));
    let next = call(8);
    let answered = client.send_to(&mut server, &next, |asked| {
        assert_eq!(asked.json()["id"], 8);
        asked.result(&json!({}));
    });
    assert_eq!(answered.await.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_repeat_that_breaks_is_resumed_by_us_or_by_the_client_under_the_clients_id() {
    for by_client in [false, true] {
        let (_gateway, mut server, client) = opened_shown(|_| {}).await;
        let (response, (mut pen, ours)) = tokio::join!(client.post(&call(7)).send(), async {
            let first = server.next().await;
            let again = repeat_of(&mut server, first).await;
            let ours = again.json()["id"].clone();
            (again.events(), ours)
        });
        let mut events = Events::new(response.unwrap());
        pen.write(event("e1", &json!({"jsonrpc": "2.0", "method": "one"})));
        let mark = events.next_message().await.0.unwrap();
        let answer = json!({"jsonrpc": "2.0", "id": ours, "result": {}});
        let mut resumed = if by_client {
            drop(events);
            pen.closed().await;
            let request = client.get().header("last-event-id", mark);
            let (events, mut pen) = client.open_stream(&mut server, request).await;
            pen.write(event("e2", &answer));
            events
        } else {
            pen.cut();
            let asked = server.next().await;
            assert_eq!(asked.header("last-event-id"), "e1");
            asked.events().write(event("e2", &answer));
            events
        };
        assert_eq!(resumed.next_message().await.1["id"], 7);
        server.finish();
    }
}

/// Breaks what is asked, answers the ping, and returns the repeat.
async fn repeat_of_stream(server: &mut Scripted, asked: Asked) -> Asked {
    asked.events().cut();
    let ping = server.next().await;
    assert_eq!(ping.rpc_method(), "ping");
    ping.result(&json!({}));
    server.next().await
}

fn patient(config: &mut Config) {
    only(config).recovery.budget = Duration::from_secs(30);
}

#[tokio::test]
async fn a_repeat_that_was_sent_goes_on_when_its_client_leaves() {
    let (gateway, mut server, client) = opened_shown(patient).await;
    let (response, first) = tokio::join!(client.post(&call(7)).send(), async {
        let first = server.next().await;
        let mut pen = first.events();
        pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
        pen
    });
    let mut events = Events::new(response.unwrap());
    events.next().await;
    first.cut();
    server.next().await.result(&json!({}));
    let again = server.next().await;
    drop(events);
    // The gateway has seen the client leave when it has served others since.
    for _ in 0..5 {
        Client::open(&gateway, &mut server, "other").await;
    }
    let pen = again.events();
    for _ in 0..5 {
        Client::open(&gateway, &mut server, "other").await;
    }
    assert!(pen.is_open(), "the repeat was given up");
    server.finish();
}

#[tokio::test]
async fn a_whole_answer_to_a_repeat_is_one_event_whatever_its_line_endings() {
    let (_gateway, mut server, client) = opened_shown(patient).await;
    let (response, ()) = tokio::join!(client.post(&call(7)).send(), async {
        let first = server.next().await;
        let again = repeat_of_stream(&mut server, first).await;
        let id = again.json()["id"].clone();
        let body =
            format!("{{\r\"jsonrpc\": \"2.0\",\r\n\"id\": {id},\n\r\r\"result\": {{}}\r\n}}\r");
        again.reply(200, &[("content-type", "application/json")], body);
    });
    let told = Events::new(response.unwrap()).all().await;
    assert_eq!(told, [json!({"jsonrpc": "2.0", "id": 7, "result": {}})]);
    server.finish();
}

#[tokio::test]
async fn a_repeat_on_a_new_generation_is_told_however_large_and_cancelled_under_its_own_id() {
    let (_gateway, mut server, client) = opened_shown(patient).await;
    let (response, again) = tokio::join!(client.post(&call(7)).send(), async {
        let first = server.next().await;
        let again = repeat_of_stream(&mut server, first).await;
        assert_ne!(again.json()["id"], 7);
        again.events().cut();
        let ping = server.next().await;
        ping.reply(404, &[("content-type", "text/plain")], "");
        server.next().await.initialized(Some("u2"));
        server.next().await
    });
    let events = Events::new(response.unwrap());
    assert_eq!(again.json()["id"], 7, "nothing of it is under way there");
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    client
        .send_to(&mut server, &cancel, |asked| {
            assert_eq!(asked.json()["params"]["requestId"], 7);
            asked.reply(202, &[], "");
        })
        .await;
    again.result(&json!({"text": "x".repeat(200 << 10)}));
    let told = events.all().await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["result"]["text"].as_str().unwrap().len(), 200 << 10);
    server.finish();
}
