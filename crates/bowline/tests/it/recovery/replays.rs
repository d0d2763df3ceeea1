//! What goes again after a failure, and what must not: nothing runs twice that may run once only.

use serde_json::json;
use tokio::task::JoinSet;

use super::losses::reopen;
use crate::kit::messages::{call, list};
use crate::kit::opened::{forgot, opened_ready};

#[tokio::test]
async fn an_unsafe_call_is_never_sent_twice() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let answer = client.send_to(&mut server, &call(7), drop).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
    let data = answer.json()["error"]["data"].clone();
    assert_eq!(
        data,
        json!({"reason": "outcome_unknown", "server": "s", "generation": 1})
    );
    // The session is asked after all the same, and mended.
    let ping = server.next().await;
    assert_eq!(
        (ping.rpc_method().as_str(), ping.header("mcp-session-id")),
        ("ping", "u1")
    );
    forgot(ping);
    reopen(&mut server, "u2").await;
    let message = call(8);
    let answered = client.send_to(&mut server, &message, |asked| {
        assert_eq!(
            (asked.json()["id"].clone(), asked.header("mcp-session-id")),
            (json!(8), "u2")
        );
        asked.result(&json!({}));
    });
    assert_eq!(answered.await.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_safe_request_goes_again_under_another_id_and_is_answered_under_its_own() {
    for as_events in [false, true] {
        let (_gateway, mut server, client) = opened_ready(|_| {}).await;
        let message = list("mine");
        let (answer, ()) = tokio::join!(client.send(&message), async {
            drop(server.next().await);
            let ping = server.next().await;
            assert_eq!(ping.rpc_method(), "ping");
            ping.result(&json!({}));
            let again = server.next().await;
            assert_eq!(
                (again.rpc_method().as_str(), again.header("mcp-session-id")),
                ("tools/list", "u1")
            );
            assert_ne!(again.json()["id"], "mine");
            if as_events {
                let answer =
                    json!({"jsonrpc": "2.0", "id": again.json()["id"], "result": {"tools": []}});
                again.events().write(format!("data: {answer}\n\n"));
            } else {
                again.result(&json!({"tools": []}));
            }
        });
        assert_eq!(answer.status, 200);
        assert!(answer.text.contains(r#""id":"mine""#), "{}", answer.text);
        server.finish();
    }
}

#[tokio::test]
async fn a_tool_that_says_it_only_reads_goes_again() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let tools =
        json!({"tools": [{"name": "t", "inputSchema": {}, "annotations": {"readOnlyHint": true}}]});
    server.lists(&tools);
    client
        .send_to(&mut server, &list(1), |asked| asked.result(&tools))
        .await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(server.next().await);
        server.next().await.result(&json!({}));
        let again = server.next().await;
        assert_eq!(again.rpc_method(), "tools/call");
        again.result(&json!({"content": []}));
    });
    assert_eq!(
        (answer.status.as_u16(), answer.json()["id"].clone()),
        (200, json!(7))
    );
    server.finish();
}

#[tokio::test]
async fn a_cancelled_request_is_not_replayed() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let message = call(7);
    let cancel =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        // The request waits for this; its client does not.
        let opening = server.next().await;
        assert_eq!(opening.rpc_method(), "initialize");
        assert_eq!(client.send(&cancel).await.status, 202);
        // What others may need goes on.
        opening.initialized(Some("u2"));
        let ready = server.next().await;
        assert_eq!(ready.rpc_method(), "notifications/initialized");
        ready.reply(202, &[], "");
    });
    assert_eq!(answer.code(), -32800);
    let message = call(8);
    let next = client.send_to(&mut server, &message, |asked| {
        assert_eq!(
            (&asked.json()["id"], asked.header("mcp-session-id")),
            (&json!(8), "u2")
        );
        asked.result(&json!({}));
    });
    assert_eq!(next.await.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_broken_answer_is_resumed_where_the_server_can() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\nid: e2\ndata: ha");
    assert_eq!(events.next_message().await.1["method"], "one");
    pen.cut();
    let resumed = server.next().await;
    assert_eq!(
        (resumed.method.as_str(), resumed.header("last-event-id")),
        ("GET", "e1")
    );
    let mut pen = resumed.events();
    // Some servers begin with the event that was named.
    pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
    pen.write("id: e2\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    drop(pen);
    assert_eq!(
        events.next_message().await.1["id"],
        7,
        "no event twice, and none lost"
    );
    events.ends_cleanly().await;
    server.finish();
}

#[tokio::test]
async fn a_client_that_left_has_nothing_replayed() {
    let (_gateway, mut server, client) = opened_ready(|_| {}).await;
    let request = client.post(&list(7)).send();
    let sending = JoinSet::from_iter([request]);
    let asked = server.next().await;
    drop(sending);
    // The gateway has noticed once another exchange has gone through.
    for id in 0..3 {
        client
            .send_to(&mut server, &call(id), |asked| asked.result(&json!({})))
            .await;
    }
    drop(asked);
    let ping = server.next().await;
    assert_eq!(ping.rpc_method(), "ping");
    ping.result(&json!({}));
    let message = call(8);
    let answered = client.send_to(&mut server, &message, |asked| {
        assert_eq!(
            asked.rpc_method(),
            "tools/call",
            "the listing was not sent again"
        );
        asked.result(&json!({}));
    });
    assert_eq!(answered.await.status, 200);
    server.finish();
}
