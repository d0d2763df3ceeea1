//! Scenarios in which other gateways and clients were seen to fail; docs/testing.md lists them.

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use bowline_testbed::scripted::Scripted;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;
use crate::kit::stage::Stage;

#[tokio::test]
async fn a_server_that_restarts_on_its_port_is_found_again() {
    for called_while_dead in [false, true] {
        let stage = Stage::set().await;
        for restarts in 1..=3 {
            let key = format!("restart {restarts}");
            stage.server.die().await;
            let twin = stage.client.clone();
            let mut calling = JoinSet::new();
            let arguments = json!({"key": key});
            let calls = async move { twin.call(1, "bump", &arguments).await };
            if called_while_dead {
                calling.spawn(calls);
                // The proxy takes the call and has nobody to give it to.
                let before = stage.proxy.requests();
                crate::kit::wait::until("the call", || stage.proxy.requests() > before).await;
                stage.server.come_back().unwrap();
            } else {
                stage.server.come_back().unwrap();
                calling.spawn(calls);
            }
            let answer = calling.join_next().await.unwrap().unwrap();
            if called_while_dead {
                // It left for somebody who might have taken it.
                assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
                assert_eq!(stage.tally.executions(&key), 0);
            } else {
                assert_eq!(answer.status, 200, "{answer:?}");
                assert_eq!(stage.tally.executions(&key), 1);
            }
            stage.works_after(restarts + 1).await;
        }
    }
}

#[tokio::test]
async fn a_cancelled_call_that_meets_a_loss_costs_no_session() {
    let stage = Stage::set().await;
    let late = Fault::Delay(Duration::from_millis(300));
    let mut rule = stage.proxy.next(1, When::tool("bump"), late);
    let twin = stage.client.clone();
    let mut calling = JoinSet::new();
    calling.spawn(async move { twin.call(7, "bump", &json!({"key": "k"})).await });
    rule.until_met(1).await;
    let cancelled =
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}});
    assert_eq!(stage.client.send(&cancelled).await.status, 202);
    stage.server.forget_sessions();
    let answer = calling.join_next().await.unwrap().unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    stage.works_after(2).await;
}

#[tokio::test]
async fn other_failures_are_no_reason_to_open_a_session() {
    for status in [400, 409, 422, 429, 500, 501] {
        let stage = Stage::set().await;
        let sorry = Fault::Answer(Canned::plain(status, "sorry"));
        let rule = stage.proxy.always(When::tool("bump"), sorry);
        let answer = stage.call("bump", "k").await;
        let told = match status {
            500.. => (200, Some(-31001)),
            refused => (refused, Some(-31002)),
        };
        assert_eq!((answer.status.as_u16(), answer.failure()), told);
        assert_eq!(
            (rule.met(), stage.tally.executions("k")),
            (1, 0),
            "{status}"
        );
        rule.remove();
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn an_error_after_a_recovery_is_the_answer() {
    let stage = Stage::set().await;
    stage.server.forget_sessions();
    let own = Canned::json(
        200,
        r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32000,"message":"no"}}"#,
    );
    stage.proxy.next(1, When::tool("bump"), Fault::Pass);
    let again = stage.proxy.next(1, When::tool("bump"), Fault::Answer(own));
    let answer = stage.call("bump", "k").await;
    assert_eq!((answer.failure(), again.met()), (Some(-32000), 1));
    stage.works_after(2).await;
}

#[tokio::test]
async fn a_server_that_issues_no_id_any_more_is_served_without_and_one_that_repeats_it_is_not_heard()
 {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::open(&gateway, &mut server, "u1").await;
    for id in [Some("u2"), None] {
        let message = call(7);
        let (answer, ()) = tokio::join!(client.send(&message), async {
            let lost = server.next().await;
            lost.reply(404, &[("content-type", "text/plain")], "");
            server.next().await.initialized(id);
            let again = server.next().await;
            assert_eq!(again.header("mcp-session-id"), id.unwrap_or_default());
            let echo: Vec<_> = id.iter().map(|id| ("mcp-session-id", *id)).collect();
            again.result_with(&echo, &json!({}));
        });
        assert_eq!(answer.status, 200);
        let shown = answer.headers.get("mcp-session-id");
        assert!(shown.is_none() || shown == client.session.as_ref());
    }
    server.finish();
}

#[tokio::test]
async fn stopping_does_not_wait_for_a_recovery_that_hangs() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.stop_timeout = Duration::from_millis(300);
    let gateway = bowline::Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let request = client.post(&call(7)).send();
    let mut calling = JoinSet::new();
    calling.spawn(async move { request.await.is_ok() });
    let lost = server.next().await;
    lost.reply(404, &[("content-type", "text/plain")], "");
    let hanging = server.next().await;
    assert_eq!(hanging.rpc_method(), "initialize");
    // Its answer never comes.
    let started = Instant::now();
    gateway.stop().await;
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn a_clean_end_is_the_servers_choice_only_where_one_can_come_back_for_the_rest() {
    for with_id in [true, false] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = Client::open(&gateway, &mut server, "u1").await;
        let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
        let id = if with_id { "id: e1\n" } else { "" };
        pen.write(format!(
            "{id}data: {{\"jsonrpc\":\"2.0\",\"method\":\"one\"}}\n\n"
        ));
        assert_eq!(events.next_message().await.1["method"], "one");
        drop(pen);
        if !with_id {
            let (_, told) = events.next_message().await;
            assert_eq!(told["error"]["code"], -31001);
            let ping = server.next().await;
            assert_eq!(ping.rpc_method(), "ping");
            ping.result(&json!({}));
        }
        events.ends_cleanly().await;
        server.finish();
    }
}

#[tokio::test]
async fn an_ended_session_stays_ended_whatever_is_said_in_it() {
    let stage = Stage::set().await;
    stage.server.forget_sessions();
    assert_eq!(stage.client.end().await.status, 204);
    assert_eq!(stage.call("bump", "k").await.status, 404);
    assert_eq!(stage.client.end().await.status, 404);
    assert_eq!(
        (stage.server.initializes(), stage.tally.executions("k")),
        (1, 0)
    );
    let nobody = Client::new(&stage.gateway);
    let answer = sent(nobody.post(&call(1))).await;
    assert_eq!(answer.status, 400, "no session id, no session");
}
