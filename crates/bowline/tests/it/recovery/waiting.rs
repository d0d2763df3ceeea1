//! Who waits for a recovery, for how long, and what they learn.

use std::time::Duration;

use bowline_testbed::faulty::{Canned, Fault, When};
use bowline_testbed::scripted::PATIENCE;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kit::messages::{call, list};
use crate::kit::opened::{forgot, opened};
use crate::kit::stage::Stage;
use crate::kit::wait::{until, until_so};

// --- who waits

#[tokio::test]
async fn an_open_get_is_reason_enough_to_recover() {
    let stage = Stage::set().await;
    let mut events = stage.client.listen().await;
    until("the stream", || stage.server.sessions()[0].listens == 1).await;
    stage.server.forget_sessions();
    stage.proxy.break_connections();
    let listens = || {
        let sessions = stage.server.sessions();
        sessions.first().is_some_and(|session| session.listens == 1)
    };
    until("the stream in a new session", listens).await;
    let news = json!({"jsonrpc": "2.0", "method": "n"});
    stage.server.emit(&news);
    assert_eq!(events.next_message().await.1, news);
    assert_eq!(stage.server.initializes(), 2);
}

#[tokio::test]
async fn one_who_leaves_is_not_waited_for_and_the_others_get_what_they_waited_for() {
    let (_gateway, mut server, client) = opened().await;
    let mut leaving = JoinSet::from_iter([client.post(&call("leaves")).send()]);
    forgot(server.next().await);
    let opening = server.next().await;
    assert_eq!(opening.rpc_method(), "initialize");
    let message = call("stays");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        leaving.abort_all();
        while leaving.join_next().await.is_some() {}
        opening.initialized(Some("u2"));
        // Had the one left before the other came, the other has the session opened anew.
        let again = loop {
            let asked = server.next().await;
            match &*asked.rpc_method() {
                "initialize" => asked.initialized(Some("u3")),
                _ => break asked,
            }
        };
        let whose = &again.json()["id"];
        assert_eq!(whose, "stays", "nothing goes again for one who left");
        again.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_recovery_that_nobody_waits_for_stops_and_the_next_one_begins_anew() {
    let (_gateway, mut server, client) = opened().await;
    let leaving = JoinSet::from_iter([client.post(&call("leaves")).send()]);
    forgot(server.next().await);
    let opening = server.next().await;
    assert_eq!(opening.rpc_method(), "initialize");
    drop(leaving);
    opening.given_up().await;
    let message = call("stays");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        server.next().await.initialized(Some("u2"));
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    server.finish();
}

// --- how long

#[tokio::test]
async fn a_server_that_asks_for_time_gets_it() {
    let stage = Stage::set().await;
    stage.server.forget_sessions();
    let busy = Canned::plain(503, "busy").header("retry-after", "1");
    let opening = stage
        .proxy
        .next(1, When::rpc("initialize"), Fault::Answer(busy));
    let started = Instant::now();
    assert_eq!(stage.call("bump", "k").await.status, 200);
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!((opening.met(), stage.tally.executions("k")), (1, 1));
}

#[tokio::test]
async fn a_server_that_asks_for_time_when_it_is_pinged_gets_it() {
    let stage = Stage::set().await;
    let busy = || Fault::Answer(Canned::plain(503, "busy").header("retry-after", "1"));
    stage.proxy.next(1, When::tool("read"), busy());
    let ping = stage.proxy.next(1, When::rpc("ping"), busy());
    let started = Instant::now();
    assert_eq!(stage.call("read", "k").await.status, 200);
    assert!(
        started.elapsed() >= Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(ping.met(), 1);
}

#[tokio::test]
async fn a_server_that_was_away_for_longer_than_the_budget_is_found_again_by_a_client_that_insists()
{
    let budget = Duration::from_secs(1);
    let stage = Stage::set_with(|recovery| recovery.budget = budget).await;
    stage.server.forget_sessions();
    let hanging = Fault::Delay(Duration::from_secs(10));
    let opening = stage.proxy.always(When::rpc("initialize"), hanging);
    let message = list(1);
    let gone = stage.client.send(&message).await;
    assert_eq!((gone.status.as_u16(), gone.failure()), (503, Some(-31002)));
    opening.remove();
    let insisting = async {
        loop {
            let answer = stage.client.send(&message).await;
            if answer.status == 200 {
                return;
            }
            assert_eq!(answer.status, 503);
            tokio::time::sleep(budget / 10).await;
        }
    };
    let found = tokio::time::timeout(PATIENCE, insisting).await;
    assert!(found.is_ok(), "never found again");
    // How often it was opened is not counted: the first tries may have had too little time left.
    assert_eq!(stage.call("bump", "found").await.status, 200);
    assert_eq!(stage.tally.executions("found"), 1);
}

/// It answers `initialize` only after longer than insisting leaves of the budget.
#[tokio::test]
async fn a_slow_server_that_was_away_is_found_again_by_a_client_that_insists() {
    let budget = Duration::from_secs(3);
    let stage = Stage::set_with(|recovery| recovery.budget = budget).await;
    stage.server.forget_sessions();
    let hanging = Fault::Delay(Duration::from_secs(10));
    let opening = stage.proxy.always(When::rpc("initialize"), hanging);
    let message = list(1);
    assert_eq!(stage.client.send(&message).await.status, 503);
    opening.remove();
    let slow = Fault::Delay(budget / 6);
    let _slow = stage.proxy.always(When::rpc("initialize"), slow);
    until_so("it is found", async || {
        stage.client.send(&message).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn every_waiter_learns_at_once_when_the_recovery_fails() {
    let budget = Duration::from_secs(1);
    let stage = Stage::set_with(|recovery| recovery.budget = budget).await;
    stage.server.forget_sessions();
    let sorry = Fault::Answer(Canned::plain(500, "no"));
    let opening = stage.proxy.always(When::rpc("initialize"), sorry);
    let started = Instant::now();
    let mut waiting = JoinSet::new();
    for number in 0..20 {
        let twin = stage.client.clone();
        waiting.spawn(async move { twin.call(number, "bump", &json!({"key": "k"})).await });
    }
    while let Some(told) = waiting.join_next().await {
        assert_eq!(told.unwrap().failure(), Some(-31002));
    }
    assert!(
        started.elapsed() < budget + Duration::from_millis(500),
        "{:?}",
        started.elapsed()
    );
    assert!(opening.met() > 2, "{}", opening.met());
    assert_eq!(stage.tally.executions("k"), 0);
}
