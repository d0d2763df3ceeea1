//! A request that goes again: under an id of its own, which nobody but the server ever sees.

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::{Value, json};

use crate::client::{Client, Events, call, gateway};
use crate::stage::list;

/// A session whose client knows that the tool `t` only reads.
async fn opened() -> (Gateway, Scripted, Client) {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u1").await;
    let tools =
        json!({"tools": [{"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": true}}]});
    client
        .send_to(&mut server, &list(1), |asked| asked.result(&tools))
        .await;
    (gateway, server, client)
}

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
    let (_gateway, mut server, client) = opened().await;
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

#[tokio::test]
async fn a_cancel_reaches_the_repeat() {
    let (_gateway, mut server, client) = opened().await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let first = server.next().await;
        let again = repeat_of(&mut server, first).await;
        let expected = cancel(&again.json()["id"]);
        let cancel = cancel(&json!(7));
        let told = client.send_to(&mut server, &cancel, |asked| {
            assert_eq!(asked.json(), expected);
            asked.reply(202, &[], "");
        });
        assert_eq!(told.await.status, 202);
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
async fn a_cancel_reaches_a_repeat_that_streams() {
    let (_gateway, mut server, client) = opened().await;
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
    let enough = cancel(&json!(7));
    let told = client.send_to(&mut server, &enough, |asked| {
        assert_eq!(asked.json(), cancel(&ours));
        asked.reply(202, &[], "");
    });
    assert_eq!(told.await.status, 202);
    let answer = json!({"jsonrpc": "2.0", "id": ours, "result": {}});
    pen.write(format!("data: {answer}\n\n"));
    assert_eq!(events.next_message().await.1["id"], 7);
    server.finish();
}

#[tokio::test]
async fn a_request_that_was_cancelled_while_it_streamed_does_not_go_again() {
    let (_gateway, mut server, client) = opened().await;
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
        let (_gateway, mut server, client) = opened().await;
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
