//! What happened, and what Bowline does: the table's rows in which nothing was sent or no whole answer came,
//! with what ran counted.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Replay, Server};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::{Canned, Fault, Faulty, When};
use http::Method;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::stage::Stage;
use crate::kit::wait::until;

// --- nothing was sent

#[tokio::test]
async fn refused_it_waits_for_the_same_server_and_the_same_session() {
    let stage = Stage::set().await;
    stage.proxy.refuse().await;
    stage.proxy.break_connections();
    let twin = stage.client.clone();
    let (answer, ()) = tokio::join!(
        async { twin.call("k", "bump", &json!({"key": "k"})).await },
        async {
            // Long enough for a few attempts; any other time would do as well.
            tokio::time::sleep(Duration::from_millis(300)).await;
            stage.proxy.accept().unwrap();
        }
    );
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(stage.tally.executions("k"), 1);
    stage.works_after(1).await;
}

/// Two replicas, the first behind a proxy, and a session on the first.
async fn two_replicas() -> (Tally, Faulty, [Counting; 2], Gateway, Client) {
    let tally = Tally::default();
    let one = Counting::start("one", &tally).await.unwrap();
    let two = Counting::start("two", &tally).await.unwrap();
    let proxy = Faulty::start(one.address()).await.unwrap();
    let mut config = config(&[]);
    let urls = format!("{},{}", proxy.url(), two.url());
    let server = Server::from_urls(&urls).unwrap();
    config.servers.insert("s".parse().unwrap(), server);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    while one.sessions().is_empty() {
        client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
    }
    (tally, proxy, [one, two], gateway, client)
}

#[tokio::test]
async fn refused_for_good_it_is_recovered_elsewhere_and_the_call_runs_once() {
    let (tally, proxy, [one, two], _gateway, client) = two_replicas().await;
    let elsewhere = two.sessions().len();
    proxy.refuse().await;
    proxy.break_connections();
    let answer = client.call(1, "bump", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let ran = tally.all()["k"].clone();
    assert_eq!(ran.len(), 1);
    assert_eq!(ran[0].replica, "two");
    assert_eq!(two.sessions().len(), elsewhere + 1);
    assert_eq!(one.sessions().len(), 1, "nobody could be told to end it");
}

// --- sent, and no answer

/// Faults after which nobody knows whether the request ran.
fn unknown() -> Vec<Fault> {
    let mut faults = vec![Fault::ResetBefore, Fault::ResetAfter, Fault::Cut(10)];
    for status in [502, 503, 504] {
        faults.push(Fault::Answer(Canned::plain(status, "sorry")));
    }
    faults.push(Fault::Answer(Canned::plain(200, "<html>")));
    let other = r#"{"jsonrpc":"2.0","id":"another","result":{}}"#;
    faults.push(Fault::Answer(Canned::json(200, other)));
    faults
}

#[tokio::test]
async fn an_unsafe_call_without_an_answer_is_unknown_and_runs_at_most_once() {
    for fault in unknown() {
        let stage = Stage::set().await;
        let rule = stage.proxy.next(1, When::tool("bump"), fault.clone());
        let mut ping = stage.proxy.always(When::rpc("ping"), Fault::Pass);
        let answer = stage.call("bump", "k").await;
        assert_eq!(answer.failure(), Some(-31001), "{fault:?}: {answer:?}");
        assert_eq!(answer.status, 200, "in band");
        let data = &answer.messages()[0]["error"]["data"];
        assert_eq!(
            *data,
            json!({"reason": "outcome_unknown", "server": "s", "generation": 1})
        );
        assert_eq!(answer.messages()[0]["id"], "k");
        assert!(!answer.headers.contains_key("retry-after"));
        ping.until_met(1).await;
        stage.works_after(1).await;
        assert_eq!(rule.met(), 1, "{fault:?}");
        assert!(stage.tally.executions("k") <= 1, "{fault:?}");
    }
}

#[tokio::test]
async fn a_safe_call_without_an_answer_goes_again_on_the_same_session() {
    for fault in unknown() {
        let stage = Stage::set().await;
        stage.proxy.next(1, When::tool("read"), fault.clone());
        let answer = stage.call("read", "k").await;
        assert_eq!(answer.status, 200, "{fault:?}: {answer:?}");
        assert!(answer.to(&json!("k")).is_some(), "{answer:?}");
        assert!((1..=2).contains(&stage.tally.executions("k")));
        let sessions: Vec<_> = stage.tally.all()["k"]
            .iter()
            .map(|ran| ran.session.clone())
            .collect();
        assert!(
            sessions.iter().all(|session| session == "r-1"),
            "{sessions:?}"
        );
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn a_ping_that_fails_proves_nothing_and_one_that_is_denied_proves_the_loss() {
    for forgotten in [false, true] {
        let stage = Stage::set().await;
        stage.proxy.next(1, When::tool("read"), Fault::ResetAfter);
        let failing = stage.proxy.next(3, When::rpc("ping"), Fault::ResetAfter);
        if forgotten {
            stage.server.forget_sessions();
        }
        let answer = stage.call("read", "k").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        // A ping that is reset after the server read it was answered to nobody.
        assert_eq!(failing.met(), 3);
        stage.works_after(if forgotten { 2 } else { 1 }).await;
    }
}

#[tokio::test]
async fn what_is_safe_to_repeat_is_repeated_and_nothing_else_is() {
    let params =
        json!({"uri": "u", "name": "n", "level": "info", "ref": {}, "argument": {}, "taskId": "t"});
    for (method, safe) in [
        ("ping", true),
        ("tools/list", true),
        ("resources/list", true),
        ("resources/read", true),
        ("prompts/get", true),
        ("completion/complete", true),
        ("logging/setLevel", true),
        ("resources/subscribe", true),
        ("resources/unsubscribe", true),
        ("tasks/get", true),
        ("tasks/result", true),
        ("tasks/cancel", false),
        ("vendor/own", false),
    ] {
        let stage = Stage::set().await;
        let rule = stage.proxy.next(1, When::rpc(method), Fault::ResetAfter);
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let answer = stage.client.send(&message).await;
        assert_eq!(rule.met(), 1);
        let came = |session: &bowline_testbed::counting::Session| {
            session
                .methods
                .iter()
                .filter(|came| *came == method)
                .count()
        };
        let came = came(&stage.server.sessions()[0]);
        let listed = usize::from(method == "tools/list");
        if safe {
            assert_ne!(answer.failure(), Some(-31001), "{method}");
            assert_eq!(answer.messages()[0]["id"], 1, "{method}");
            assert!(came >= 2 + listed, "{method}");
        } else {
            assert_eq!(answer.failure(), Some(-31001), "{method}");
            assert_eq!(came, 1, "{method}");
        }
    }
}

#[tokio::test]
async fn the_operators_word_on_what_is_safe() {
    for (replay, tool, goes_again) in [
        (Replay::Never, "read", false),
        (Replay::Tools(vec!["bump".to_owned()]), "bump", true),
        (Replay::Tools(vec!["other".to_owned()]), "bump", false),
        (Replay::Tools(vec!["other".to_owned()]), "read", true),
    ] {
        let stage = Stage::set_with(|recovery| recovery.replay = replay.clone()).await;
        stage.proxy.next(1, When::tool(tool), Fault::ResetAfter);
        let answer = stage.call(tool, "k").await;
        let ran = stage.tally.executions("k");
        if goes_again {
            assert_eq!((answer.status.as_u16(), ran), (200, 2), "{replay:?} {tool}");
        } else {
            assert_eq!(
                (answer.failure(), ran),
                (Some(-31001), 1),
                "{replay:?} {tool}"
            );
        }
    }
}

#[tokio::test]
async fn the_clients_initialize_goes_again_and_its_delete_does_not() {
    let stage = Stage::set().await;
    let rule = stage
        .proxy
        .next(1, When::rpc("initialize"), Fault::ResetAfter);
    let mut other = Client::new(&stage.gateway);
    let answer = other.begin().await;
    assert_eq!((answer.status.as_u16(), answer.failure()), (200, None));
    // One session is left at the server, which nobody will use.
    assert_eq!((rule.met(), stage.server.initializes()), (1, 3));

    let mut rule = stage
        .proxy
        .next(1, When::http(Method::DELETE), Fault::ResetAfter);
    let again = stage.proxy.always(When::http(Method::DELETE), Fault::Pass);
    let client = stage.client;
    assert_eq!(client.end().await.status, 204);
    rule.until_done(1).await;
    // A second would come from the same task, before the gateway has stopped.
    stage.gateway.stop().await;
    assert_eq!((again.met(), stage.server.deletes()), (0, 1));
}

// --- a stream that is cut

fn texts(messages: &[Value]) -> Vec<&Value> {
    messages
        .iter()
        .filter(|message| message["method"].is_string())
        .collect()
}

#[tokio::test]
async fn a_cut_answer_with_event_ids_is_resumed_and_nothing_comes_twice() {
    // Wherever it is cut: within the first event, between events, within the answer.
    for place in [1, 20, 150, 300, 420] {
        let stage = Stage::set().await;
        let cut = stage
            .proxy
            .next(1, When::tool("stream_read"), Fault::Cut(place));
        let answer = stage.call("stream_read", "k").await;
        assert_eq!(cut.met(), 1, "cut at {place}");
        assert!(
            answer.to(&json!("k")).is_some(),
            "cut at {place}: {answer:?}"
        );
        assert_eq!(
            texts(&answer.messages()).len(),
            3,
            "cut at {place}: {answer:?}"
        );
        let mut ids = answer.event_ids();
        ids.dedup();
        assert_eq!(ids.len(), answer.event_ids().len());
        // Before the first event id there is nothing to resume from; the tool may run twice.
        let most = if place < 20 { 2 } else { 1 };
        let ran = stage.tally.executions("k");
        assert!((1..=most).contains(&ran), "cut at {place}: ran {ran} times");
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn a_resume_that_fails_is_a_request_whose_outcome_is_unknown() {
    for safe in [false, true] {
        let replay = if safe { Replay::Safe } else { Replay::Never };
        let stage = Stage::set_with(|recovery| recovery.replay = replay).await;
        stage
            .proxy
            .next(1, When::tool("stream_read"), Fault::Cut(150));
        let gone = Fault::Answer(Canned::plain(400, "no such event"));
        let resumed = stage.proxy.next(1, When::http(Method::GET), gone);
        let answer = stage.call("stream_read", "k").await;
        assert_eq!(resumed.met(), 1);
        let told = answer.to(&json!("k")).expect("an answer, not silence");
        if safe {
            assert_eq!(told["result"]["structuredContent"]["key"], "k");
            assert_eq!(stage.tally.executions("k"), 2);
        } else {
            assert_eq!(told["error"]["code"], -31001);
            assert_eq!(stage.tally.executions("k"), 1);
        }
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn a_cut_answer_without_event_ids_is_unknown_or_goes_again_with_progress_only_forward() {
    for safe in [false, true] {
        let listed = vec!["slow".to_owned()];
        let replay = if safe {
            Replay::Tools(listed)
        } else {
            Replay::Safe
        };
        let stage = Stage::set_with(|recovery| recovery.replay = replay).await;
        // In the middle of the third of its progress notifications.
        let cut = stage.proxy.next(1, When::tool("slow"), Fault::Cut(330));
        let message = json!({"jsonrpc": "2.0", "id": "k", "method": "tools/call", "params": {
            "name": "slow", "arguments": {"key": "k", "steps": 5}, "_meta": {"progressToken": "p"},
        }});
        let answer = stage.client.send(&message).await;
        assert_eq!(cut.met(), 1);
        let progress: Vec<_> = texts(&answer.messages())
            .iter()
            .map(|told| told["params"]["progress"].as_u64().unwrap())
            .collect();
        let told = answer.to(&json!("k")).expect("an answer, not silence");
        if safe {
            assert_eq!(progress, [1, 2, 3, 4, 5]);
            assert_eq!(told["result"]["structuredContent"]["executions"], 2);
        } else {
            assert!(progress.len() < 5, "{progress:?}");
            assert_eq!(told["error"]["code"], -31001);
            assert_eq!(stage.tally.executions("k"), 1);
        }
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn a_listing_that_changed_is_not_trusted_any_more() {
    let stage = Stage::set().await;
    let mut events = stage.client.listen().await;
    until("the stream", || stage.server.sessions()[0].listens == 1).await;
    stage
        .server
        .emit(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
    let told = events.next_message().await.1;
    assert_eq!(told["method"], "notifications/tools/list_changed");
    stage.proxy.next(1, When::tool("read"), Fault::ResetAfter);
    assert_eq!(stage.call("read", "k").await.status, 200);
    let lists = |method: &&String| *method == "tools/list";
    let listed = stage.server.sessions()[0]
        .methods
        .iter()
        .filter(lists)
        .count();
    assert!(listed >= 1, "it is listed before it is trusted");
    stage.proxy.next(1, When::tool("read"), Fault::ResetAfter);
    assert_eq!(stage.call("read", "l").await.status, 200);
}
