//! What a recovery restores, and what it leaves alone.

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use bowline_testbed::scripted::{Scripted, initialize_result};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::gateway::gateway;
use crate::kit::messages::call;
use crate::kit::opened::{forgot, opened};
use crate::kit::stage::Stage;
use crate::kit::wait::until;

/// Loses the session by a call of the client's, and opens it anew as `id`.
pub(super) async fn lose(server: &mut Scripted, client: &Client, id: &str) {
    let message = call("loses");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        server.next().await.initialized(Some(id));
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params})
}

// --- what is restored

#[tokio::test]
async fn the_version_that_was_agreed_on_is_asked_for_and_no_other_is_taken() {
    let stage = Stage::set().await;
    let older = "2025-06-18".to_owned();
    stage
        .server
        .settings(|settings| settings.version = Some(older.clone()));
    let mut client = Client::new(&stage.gateway);
    assert_eq!(client.begin().await.status, 200);
    stage.server.forget_sessions();
    let call = json!({"key": "k"});
    assert_eq!(client.call(1, "bump", &call).await.status, 200);
    let asked_for = stage.server.sessions()[0].parameters["protocolVersion"].clone();
    assert_eq!(asked_for, older);

    // Back comes another server than the one that was lost: the client decides.
    stage.server.forget_sessions();
    let newer = "2025-11-25".to_owned();
    stage
        .server
        .settings(|settings| settings.version = Some(newer));
    let answer = client.call(2, "bump", &call).await;
    assert_eq!(
        (answer.status.as_u16(), answer.failure()),
        (404, Some(-32001))
    );
    until("the newborn's end", || stage.server.deletes() == 1).await;
    assert_eq!(stage.tally.executions("k"), 1);
}

#[tokio::test]
async fn nothing_of_the_clients_comes_before_all_is_restored() {
    let stage = Stage::set().await;
    for (method, params) in [
        ("logging/setLevel", json!({"level": "error"})),
        ("resources/subscribe", json!({"uri": "a"})),
        ("resources/subscribe", json!({"uri": "b"})),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        assert_eq!(stage.client.send(&message).await.status, 200);
    }
    stage.server.forget_sessions();
    let slowly = Fault::Delay(Duration::from_millis(30));
    stage.proxy.always(When::rpc("logging/setLevel"), slowly);
    let mut calling = JoinSet::new();
    for number in 0..10 {
        let twin = stage.client.clone();
        calling.spawn(async move {
            tokio::time::sleep(Duration::from_millis(number * 5)).await;
            twin.call(number, "bump", &json!({"key": "k"})).await
        });
    }
    while let Some(called) = calling.join_next().await {
        assert_eq!(called.unwrap().status, 200);
    }
    let sessions = stage.server.sessions();
    assert_eq!(sessions.len(), 1);
    let restored = [
        "notifications/initialized",
        "logging/setLevel",
        "resources/subscribe",
        "resources/subscribe",
    ];
    assert_eq!(sessions[0].methods[..4], restored);
    // The gateway's own list may come among them.
    let calls = sessions[0].methods[4..].iter();
    let calls: Vec<_> = calls.filter(|method| *method != "tools/list").collect();
    assert_eq!(calls, ["tools/call"; 10]);
    assert_eq!(sessions[0].log_level.as_deref(), Some("error"));
    assert_eq!(sessions[0].subscriptions.len(), 2);
    assert_eq!(stage.tally.executions("k"), 10);
}

#[tokio::test]
async fn a_session_that_could_not_be_restored_is_ended_and_another_one_is_opened() {
    let stage = Stage::set().await;
    stage.server.forget_sessions();
    let sorry = Fault::Answer(Canned::plain(500, "not now"));
    let failing = stage
        .proxy
        .next(1, When::rpc("notifications/initialized"), sorry);
    assert_eq!(stage.call("bump", "k").await.status, 200);
    assert_eq!((failing.met(), stage.tally.executions("k")), (1, 1));
    until("the half-open session's end", || {
        stage.server.deletes() == 1
    })
    .await;
    stage.works_after(3).await;
    assert_eq!(stage.server.sessions().len(), 1);
}

// --- what the client hears

#[tokio::test]
async fn changed_lists_are_told_once_however_many_losses_and_even_over_a_server_without_get() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut client = Client::new(&gateway);
    let mut result = initialize_result();
    result["capabilities"] =
        json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}, "resources": {}});
    tokio::join!(client.initialize(), async {
        let asked = server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &result);
    });
    for id in ["u2", "u3"] {
        let message = call(1);
        tokio::join!(client.send(&message), async {
            forgot(server.next().await);
            let asked = server.next().await;
            asked.result_with(&[("mcp-session-id", id)], &result);
            server.next().await.result(&json!({}));
        });
    }
    let (response, ()) = tokio::join!(client.get().send(), async {
        server.next().await.reply(405, &[], "");
    });
    let mut events = Events::new(response.unwrap());
    for list in ["tools", "prompts"] {
        let told = events.next_message().await.1;
        assert_eq!(told["method"], format!("notifications/{list}/list_changed"));
    }
    assert_eq!(client.delete().send().await.unwrap().status(), 204);
    events.ends_cleanly().await;
}

// --- what belongs to the lost generation

#[tokio::test]
async fn what_is_in_flight_ends_by_its_own_outcome() {
    let stage = Stage::set().await;
    let twin = stage.client.clone();
    let arguments = json!({"key": "slow", "steps": 10, "ms": 20});
    let mut slow = JoinSet::new();
    slow.spawn(async move { twin.call("slow", "slow", &arguments).await });
    until("the slow call", || stage.tally.executions("slow") == 1).await;
    stage.server.forget_sessions();
    stage.works_after(2).await;
    let answer = slow.join_next().await.unwrap().unwrap();
    let told = answer.to(&json!("slow")).expect("its own answer");
    assert_eq!(told["result"]["structuredContent"]["executions"], 1);
    stage.works_after(2).await;
}

#[tokio::test]
async fn a_failure_that_comes_late_does_not_touch_the_new_generation() {
    let (_gateway, mut server, client) = opened().await;
    let mut late = JoinSet::new();
    let request = client.post(&call("late")).send();
    late.spawn(async move { crate::kit::client::read(request.await.unwrap()).await });
    let asked = server.next().await;
    lose(&mut server, &client, "u2").await;
    forgot(asked);
    let again = server.next().await;
    assert_eq!(
        (again.rpc_method().as_str(), again.header("mcp-session-id")),
        ("tools/call", "u2"),
        "no second recovery"
    );
    again.result(&json!({}));
    assert_eq!(late.join_next().await.unwrap().unwrap().status, 200);
    server.finish();
}

#[tokio::test]
async fn an_answer_to_a_request_of_the_lost_generation_is_taken_and_dropped() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"sampling/createMessage\"}\n\n");
    let (_, asked) = events.next_message().await;
    lose(&mut server, &client, "u2").await;
    let late = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}});
    assert_eq!(client.send(&late).await.status, 202);
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    drop(pen);
    loop {
        let (_, told) = events.next_message().await;
        if told["id"] == 7 {
            break;
        }
    }
    server.finish();
}

#[tokio::test]
async fn a_resume_that_itself_finds_the_loss_is_not_silence() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("id: e1\ndata: {}\n\n");
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    pen.closed().await;
    let request = client.get().header("last-event-id", mark);
    let (response, ()) = tokio::join!(request.send(), async {
        let resumed = server.next().await;
        assert_eq!(resumed.header("last-event-id"), "e1");
        forgot(resumed);
        let ping = server.next().await;
        assert_eq!(ping.rpc_method(), "ping");
        forgot(ping);
        server.next().await.initialized(Some("u2"));
    });
    let mut events = Events::new(response.unwrap());
    let (_, told) = events.next_message().await;
    assert_eq!(
        (&told["id"], &told["error"]["code"]),
        (&json!(7), &json!(-31001))
    );
    events.ends_cleanly().await;
    server.finish();
}

#[tokio::test]
async fn the_notification_stream_of_a_lost_generation_goes_on_without_its_event_ids() {
    let (_gateway, mut server, client) = opened().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write("id: e1\ndata: {}\n\n");
    let mark = events.next_message().await.0.unwrap();
    drop(events);
    pen.closed().await;
    lose(&mut server, &client, "u2").await;
    let request = client.get().header("last-event-id", mark);
    let (response, mut pen) = tokio::join!(request.send(), async {
        let asked = server.next().await;
        let seen = (
            asked.header("last-event-id"),
            asked.header("mcp-session-id"),
        );
        assert_eq!(seen, ("", "u2"));
        asked.events()
    });
    pen.write("id: f1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n");
    let mut events = Events::new(response.unwrap());
    assert_eq!(events.next_message().await.1["method"], "n");
    server.finish();
}

#[tokio::test]
async fn notifications_that_meet_a_loss_are_taken_and_only_changed_roots_are_said_again() {
    for (method, again) in [
        ("roots/list_changed", true),
        ("cancelled", false),
        ("progress", false),
        ("initialized", false),
    ] {
        let (_gateway, mut server, client) = opened().await;
        let params = json!({"requestId": 1, "progressToken": 1, "progress": 1});
        let message = notification(method, &params);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            forgot(server.next().await);
            server.next().await.initialized(Some("u2"));
            if method == "initialized" {
                let restored = server.next().await;
                assert_eq!(restored.rpc_method(), "notifications/initialized");
                assert_eq!(restored.header("mcp-session-id"), "u2");
                restored.reply(202, &[], "");
            }
            if again {
                let said = server.next().await;
                assert_eq!(
                    (said.json(), said.header("mcp-session-id")),
                    (message.clone(), "u2")
                );
                said.reply(202, &[], "");
            }
        });
        assert_eq!(answer.status, 202, "{method}");
        // What comes next is the client's next message.
        let next = call(9);
        let answered = client.send_to(&mut server, &next, |asked| {
            assert_eq!(asked.json()["id"], 9, "{method}");
            asked.result(&json!({}));
        });
        assert_eq!(answered.await.status, 200);
        server.finish();
    }
}
