//! What happened, and what Bowline does: the table's rows in which the server says something, with what ran
//! counted.

use bowline_testbed::faulty::{Canned, Fault, When};
use serde_json::{Value, json};

use crate::kit::stage::Stage;
use crate::kit::wait::until;

fn error(code: i64, text: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":$id,"error":{{"code":{code},"message":"{text}"}}}}"#)
}

const UNADDRESSED: &str = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Bad Request: No valid session ID provided"}}"#;

// --- lost, and did not run

#[tokio::test]
async fn told_that_the_session_is_unknown_it_is_recovered_and_the_call_runs_once() {
    for lost in [
        Canned::plain(404, "Session not found"),
        Canned::plain(404, ""),
        Canned::json(404, &error(-32001, "Session not found")),
        Canned::json(404, r#"{"error":"no such session"}"#),
        Canned::json(404, r#"{"detail":"Not Found"}"#),
        Canned::json(404, UNADDRESSED),
        // A ping gets the same, so these speak of the session.
        Canned::json(400, UNADDRESSED),
        Canned::plain(400, "Invalid session"),
        Canned::plain(410, ""),
        Canned::json(
            400,
            r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"x"}}"#,
        ),
    ] {
        let stage = Stage::set().await;
        stage
            .server
            .settings(|settings| settings.lost = lost.clone());
        stage.server.forget_sessions();
        let answer = stage.call("bump", "k").await;
        assert_eq!(answer.status, 200, "{lost:?}: {answer:?}");
        assert!(answer.to(&json!("k")).unwrap().get("result").is_some());
        assert!(!answer.headers.contains_key("mcp-session-id"));
        assert_eq!(stage.tally.executions("k"), 1, "{lost:?}");
        stage.works_after(2).await;
    }
}

#[tokio::test]
async fn a_404_that_comes_again_is_not_believed_twice() {
    // A tool may run twice by a listing of the generation that it is called in, which the gateway asks for itself.
    let tool = |tool: &str| json!({"name": tool, "arguments": {"key": "k"}});
    for (method, params, told) in [
        ("tools/call", tool("bump"), (200, -31001)),
        ("tools/call", tool("read"), (503, -31002)),
        ("resources/read", json!({"uri": "key:k"}), (503, -31002)),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": "k", "method": method, "params": params});
        for refusal in [
            Canned::plain(404, "<html>Not Found</html>"),
            Canned::json(404, r#"{"detail":"Not Found"}"#),
        ] {
            let stage = Stage::set().await;
            let rule = stage
                .proxy
                .always(When::rpc(method), Fault::Answer(refusal.clone()));
            let answer = stage.client.send(&message).await;
            let code = answer.failure().unwrap();
            assert_eq!((answer.status.as_u16(), code), told, "{refusal:?}");
            assert_eq!((rule.met(), stage.server.initializes()), (2, 2));
            rule.remove();
            stage.works_after(2).await;
            assert_eq!(stage.tally.executions("k"), 0);
        }
    }
}

// --- a refusal that may be meant for the session

#[tokio::test]
async fn a_400_or_410_on_a_session_that_lives_is_the_answer_and_runs_nothing_again() {
    for (canned, own) in [
        (Canned::plain(400, "Session expired"), None),
        (Canned::json(400, UNADDRESSED), Some(UNADDRESSED)),
        (Canned::plain(410, "<html>"), None),
    ] {
        let stage = Stage::set().await;
        let status = canned.status;
        let rule = stage
            .proxy
            .always(When::tool("bump"), Fault::Answer(canned));
        let ping = stage.proxy.always(When::rpc("ping"), Fault::Pass);
        let answer = stage.call("bump", "k").await;
        assert_eq!(answer.status, status, "{answer:?}");
        match own {
            Some(own) => {
                let own: Value = serde_json::from_str(own).unwrap();
                assert_eq!(answer.messages(), [own]);
            }
            None => assert_eq!(answer.messages()[0]["id"], "k"),
        }
        assert_eq!((rule.met(), ping.met()), (1, 1));
        rule.remove();
        stage.works_after(1).await;
    }
}

#[tokio::test]
async fn the_applications_own_400_runs_once_whatever_it_says() {
    for own in [
        error(-32000, "card charged, but the checkout session has expired"),
        error(-32001, "Session not found"),
        error(-32600, "unknown session"),
        error(-32602, "no such file"),
    ] {
        for status in [400, 410] {
            let stage = Stage::set().await;
            let answered = Canned::json(status, &own);
            let rule = stage
                .proxy
                .always(When::tool("bump"), Fault::Answer(answered));
            let mut ping = stage.proxy.always(When::rpc("ping"), Fault::Pass);
            let answer = stage.call("bump", "k").await;
            let own: Value = serde_json::from_str(&own.replace("$id", "\"k\"")).unwrap();
            assert_eq!(
                (answer.status.as_u16(), &answer.messages()[0]),
                (status, &own)
            );
            assert_eq!(rule.met(), 1);
            match status {
                // The session may be gone: that is asked after, in the background.
                410 => ping.until_met(1).await,
                _ => assert_eq!(ping.met(), 0),
            }
            rule.remove();
            stage.works_after(1).await;
        }
    }
}

// --- a 404 that is the application's own

#[tokio::test]
async fn a_404_with_the_requests_id_and_another_error_is_passed_on_and_the_session_asked_after() {
    for forgotten in [false, true] {
        let stage = Stage::set().await;
        let own = Canned::json(404, &error(-32602, "no such customer"));
        let rule = stage.proxy.next(1, When::tool("bump"), Fault::Answer(own));
        let mut ping = stage.proxy.always(When::rpc("ping"), Fault::Pass);
        if forgotten {
            stage.server.forget_sessions();
        }
        let answer = stage.call("bump", "k").await;
        assert_eq!(
            (answer.status.as_u16(), answer.failure()),
            (200, Some(-32602))
        );
        assert_eq!(rule.met(), 1, "never replayed");
        ping.until_met(1).await;
        if forgotten {
            until("a new session", || !stage.server.sessions().is_empty()).await;
        }
        stage.works_after(if forgotten { 2 } else { 1 }).await;
        assert_eq!(stage.tally.executions("k"), 0);
    }
}

// --- an answer

#[tokio::test]
async fn an_error_or_a_result_that_is_one_is_the_answer_and_nobody_is_asked_after() {
    for own in [
        error(-32603, "session not found in the archive"),
        r#"{"jsonrpc":"2.0","id":$id,"result":{"isError":true,"content":[]}}"#.to_owned(),
    ] {
        let stage = Stage::set().await;
        let canned = Canned::json(200, &own);
        let rule = stage
            .proxy
            .next(1, When::tool("bump"), Fault::Answer(canned));
        let ping = stage.proxy.always(When::rpc("ping"), Fault::Pass);
        let answer = stage.call("bump", "k").await;
        let own: Value = serde_json::from_str(&own.replace("$id", "\"k\"")).unwrap();
        assert_eq!((answer.status.as_u16(), &answer.messages()[0]), (200, &own));
        stage.works_after(1).await;
        assert_eq!((rule.met(), ping.met()), (1, 0));
    }
}

#[tokio::test]
async fn a_hundred_calls_on_a_forgotten_session_each_run_once_and_open_one() {
    let stage = Stage::set().await;
    stage.server.forget_sessions();
    let mut calling = tokio::task::JoinSet::new();
    for number in 0..100 {
        let twin = stage.client.clone();
        calling.spawn(async move {
            let key = format!("k{number}");
            let answer = twin.call(number, "bump", &json!({"key": key})).await;
            (key, answer.status)
        });
    }
    while let Some(called) = calling.join_next().await {
        let (key, status) = called.unwrap();
        assert_eq!((status.as_u16(), stage.tally.executions(&key)), (200, 1));
    }
    assert_eq!(
        (stage.server.initializes(), stage.server.sessions().len()),
        (2, 1)
    );
}
