//! Notifications whose delivery is in doubt: the upstream session lives, but nobody knows whether the server
//! got them.

use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::messages::{call, cancel};
use crate::kit::opened::opened;

/// How a delivery fails.
const FAILURES: [fn(Asked); 2] = [
    // A load balancer's own answer.
    |asked| asked.reply(503, &[("content-type", "text/plain")], "no server"),
    // The connection breaks.
    drop,
];

fn notification(method: &str) -> Value {
    let params = json!({"requestId": 1, "progressToken": 1, "progress": 1});
    json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
}

/// Answers the ping that asks whether the session is alive.
async fn is_alive(server: &mut Scripted) {
    let ping = server.next().await;
    let seen = (ping.rpc_method(), ping.header("mcp-session-id").to_owned());
    assert_eq!(seen, ("ping".to_owned(), "u1".to_owned()));
    ping.result(&json!({}));
}

/// Shows that nothing else came: the next request is the client's next call.
async fn nothing_else_comes(mut server: Scripted, client: &Client) {
    let next = call(9);
    let answered = client.send_to(&mut server, &next, |asked| {
        assert_eq!(asked.json()["id"], 9, "{}", asked.json());
        asked.result(&json!({}));
    });
    assert_eq!(answered.await.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_cancel_and_progress_are_sent_again_once_the_session_is_known_to_be_alive() {
    for method in ["cancelled", "progress"] {
        for fail in FAILURES {
            let (_gateway, mut server, client) = opened().await;
            let message = notification(method);
            let (answer, ()) = tokio::join!(client.send(&message), async {
                let first = server.next().await;
                assert_eq!(first.json(), message);
                fail(first);
                is_alive(&mut server).await;
                let again = server.next().await;
                let seen = (again.json(), again.header("mcp-session-id"));
                assert_eq!(seen, (message.clone(), "u1"));
                again.reply(202, &[], "");
            });
            assert_eq!(answer.status, 202, "{method}: {answer:?}");
            nothing_else_comes(server, &client).await;
        }
    }
}

#[tokio::test]
async fn the_clients_answer_to_a_server_request_is_sent_again() {
    for fail in FAILURES {
        let (_gateway, mut server, client) = opened().await;
        let asking = client.post(&call(7));
        let (mut events, mut pen) = client.open_stream(&mut server, asking).await;
        pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"sampling/createMessage\"}\n\n");
        let (_, question) = events.next_message().await;
        let reply = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"role": "user"}});
        let heard = json!({"jsonrpc": "2.0", "id": 1, "result": {"role": "user"}});
        let (answer, ()) = tokio::join!(client.send(&reply), async {
            let first = server.next().await;
            assert_eq!(first.json(), heard);
            fail(first);
            is_alive(&mut server).await;
            let again = server.next().await;
            assert_eq!(again.json(), heard);
            again.reply(202, &[], "");
        });
        assert_eq!(answer.status, 202, "{answer:?}");
        nothing_else_comes(server, &client).await;
    }
}

#[tokio::test]
async fn another_notification_is_not_sent_twice_and_its_client_gets_an_error() {
    for fail in FAILURES {
        let (_gateway, mut server, client) = opened().await;
        let message = notification("of_its_own");
        let (answer, ()) = tokio::join!(client.send(&message), async {
            let first = server.next().await;
            assert_eq!(first.json(), message);
            fail(first);
            is_alive(&mut server).await;
        });
        assert_eq!(answer.status, 502, "{answer:?}");
        assert_eq!(answer.code(), -31001, "{answer:?}");
        nothing_else_comes(server, &client).await;
    }
}

#[tokio::test]
async fn a_cancel_during_a_recovery_is_accepted_at_once() {
    let (_gateway, mut server, client) = opened().await;
    let calling = client.clone();
    let listing = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/list"});
    let mut calling = JoinSet::from_iter([async move { calling.send(&listing).await }]);
    drop(server.next().await);
    // The server says nothing about the session.
    let ping = server.next().await;
    assert_eq!(ping.rpc_method(), "ping");
    let accepted = client.send(&cancel(7)).await;
    assert_eq!(accepted.status, 202, "{accepted:?}");
    let over = calling.join_next().await.unwrap().unwrap();
    assert_eq!(over.json()["error"]["data"]["reason"], "cancelled");
    drop(ping);
}
