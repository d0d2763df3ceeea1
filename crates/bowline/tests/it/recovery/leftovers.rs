//! A recovery that comes to nothing leaves no session at the server, however far it had got.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::faulty::{Fault, When};
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::messages::call;
use crate::kit::opened::{forgot, opened_ready};
use crate::kit::stage::Stage;
use crate::kit::wait::until;

/// A session, and a gateway that gives an attempt to recover it a second.
async fn hurried() -> (Gateway, Scripted, Client) {
    opened_ready(|config| only(config).recovery.budget = Duration::from_secs(3)).await
}

/// Answers the next requests until the session is open as `u3`, and its call is answered; `u2` must
/// be ended meanwhile, once.
async fn opens_another_and_ends_the_first(server: &mut Scripted) {
    let mut ended = 0;
    let mut is_answered = false;
    while !is_answered || ended == 0 {
        let asked = server.next().await;
        match (asked.method.as_str(), asked.rpc_method().as_str()) {
            ("DELETE", _) => {
                assert_eq!(asked.header("mcp-session-id"), "u2");
                ended += 1;
                asked.reply(204, &[], "");
            }
            (_, "initialize") => asked.initialized(Some("u3")),
            (_, "notifications/initialized") => asked.reply(202, &[], ""),
            (_, "tools/call") => {
                assert_eq!(asked.header("mcp-session-id"), "u3");
                is_answered = true;
                asked.result(&json!({}));
            }
            (method, rpc) => panic!("{method} {rpc}"),
        }
    }
    assert_eq!(ended, 1);
}

#[tokio::test]
async fn a_server_that_hangs_while_it_is_restored() {
    let stage = Stage::set_with(|recovery| recovery.budget = Duration::from_secs(6)).await;
    stage.server.forget_sessions();
    let hanging = Fault::Delay(Duration::from_secs(10));
    let ready = When::rpc("notifications/initialized");
    let hangs = stage.proxy.next(2, ready, hanging);
    assert_eq!(stage.call("bump", "k").await.status, 200);
    assert_eq!((hangs.met(), stage.tally.executions("k")), (2, 1));
    until("their ends", || stage.server.deletes() == 2).await;
    assert_eq!(stage.server.sessions().len(), 1);
    // The client's own, which the server forgot, the two that hung, and the one that lives.
    assert_eq!(stage.server.initializes(), 1 + 2 + 1);
}

#[tokio::test]
async fn an_answer_to_initialize_that_never_comes_after_its_head() {
    let (_gateway, mut server, client) = hurried().await;
    let message = call(1);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        let head = [
            ("content-type", "text/event-stream"),
            ("mcp-session-id", "u2"),
        ];
        let _pen = server.next().await.begin(200, &head);
        opens_another_and_ends_the_first(&mut server).await;
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn an_answer_to_initialize_that_is_none() {
    let (_gateway, mut server, client) = hurried().await;
    let message = call(1);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        let head = [
            ("content-type", "application/json"),
            ("mcp-session-id", "u2"),
        ];
        let other = json!({"jsonrpc": "2.0", "id": "another", "result": {}});
        server.next().await.reply(200, &head, other.to_string());
        opens_another_and_ends_the_first(&mut server).await;
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_recovery_that_nobody_waits_for_any_more() {
    let (_gateway, mut server, client) = hurried().await;
    let mut leaving = Box::pin(client.post(&call(1)).send());
    tokio::select! {
        _ = &mut leaving => panic!("nobody has answered"),
        asked = server.next() => forgot(asked),
    }
    let opening = server.next().await;
    assert_eq!(opening.rpc_method(), "initialize");
    opening.initialized(Some("u2"));
    let ready = server.next().await;
    assert_eq!(ready.rpc_method(), "notifications/initialized");
    drop(leaving);
    ready.given_up().await;
    let ended = server.next().await;
    assert_eq!(
        (ended.method.as_str(), ended.header("mcp-session-id")),
        ("DELETE", "u2")
    );
    ended.reply(204, &[], "");
    server.finish();
}
