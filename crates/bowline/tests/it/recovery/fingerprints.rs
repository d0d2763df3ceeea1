//! Servers that say in their own way that a session is lost, as the operator described it.

use bowline::Gateway;
use bowline::config::{Fingerprint, Recovery};
use bowline_testbed::faulty::{Canned, Fault, When};
use bowline_testbed::scripted::Scripted;
use http::StatusCode;
use serde_json::json;

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::config;
use crate::kit::messages::call;
use crate::kit::stage::Stage;
use crate::kit::wait::until;

const GONE: &str =
    r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32099,"message":"who are you again?"}}"#;
const GONE_RESULT: &str = r#"{"jsonrpc":"2.0","id":$id,"result":{"isError":true,"content":[{"type":"text","text":"who are you again?"}]}}"#;

fn print(status: u16, code: Option<i64>, text: Option<&str>) -> Fingerprint {
    Fingerprint {
        status: StatusCode::from_u16(status).unwrap(),
        code,
        text: text.map(str::to_owned),
    }
}

/// A server that says so by this answer, and a gateway that knows; the session is forgotten.
async fn forgotten(canned: Canned) -> Stage {
    let stage = knowing(&canned).await;
    stage.server.forget_sessions();
    stage
}

async fn knowing(canned: &Canned) -> Stage {
    let status = canned.status;
    let prints = move |recovery: &mut Recovery| {
        recovery.fingerprints = vec![print(status, None, Some("who are you"))];
    };
    let stage = Stage::set_with(prints).await;
    stage
        .server
        .settings(|settings| settings.lost = canned.clone());
    stage
}

fn ways() -> Vec<Canned> {
    let events = format!("event: message\ndata: {GONE}\n\n");
    let mut streamed = Canned::plain(200, &events);
    streamed.headers[0].1 = "text/event-stream".to_owned();
    vec![
        Canned::json(200, GONE),
        Canned::json(200, GONE_RESULT),
        streamed,
        Canned::json(500, GONE),
        Canned::plain(500, "who are you?"),
        Canned::plain(503, "who are you?"),
        Canned::json(401, GONE),
        Canned::plain(401, "who are you?"),
        Canned::plain(403, "who are you?"),
        Canned::plain(440, "who are you?"),
    ]
}

#[tokio::test]
async fn a_safe_call_is_recovered_and_goes_again() {
    for way in ways() {
        let stage = forgotten(way.clone()).await;
        let answer = stage.call("read", "k").await;
        assert_eq!(answer.status, 200, "{way:?}: {answer:?}");
        let told = answer.to(&json!("k")).expect("one answer");
        assert_eq!(told["result"]["structuredContent"]["key"], "k", "{way:?}");
        assert_eq!(stage.tally.executions("k"), 1, "{way:?}");
        stage.works_after(2).await;
    }
}

#[tokio::test]
async fn an_unsafe_call_is_unknown_and_never_replayed_and_the_session_recovers() {
    for way in ways() {
        let stage = forgotten(way.clone()).await;
        let calls = stage.proxy.always(When::tool("bump"), Fault::Pass);
        let answer: Answer = stage.call("bump", "k").await;
        assert_eq!(answer.failure(), Some(-31001), "{way:?}: {answer:?}");
        assert!(!answer.headers.contains_key("www-authenticate"));
        // A safe call waits for the recovery that the other one has begun.
        assert_eq!(stage.call("read", "l").await.status, 200, "{way:?}");
        assert_eq!((calls.met(), stage.tally.executions("k")), (1, 0));
        stage.works_after(2).await;
    }
}

#[tokio::test]
async fn a_ping_a_notification_and_a_stream_know_the_answer_too() {
    for way in ways() {
        // The ping after a reset.
        let stage = forgotten(way.clone()).await;
        stage.proxy.next(1, When::tool("read"), Fault::ResetBefore);
        assert_eq!(stage.call("read", "k").await.status, 200, "{way:?}");
        stage.works_after(2).await;

        // A notification: taken, and the session is recovered behind it.
        let stage = forgotten(way.clone()).await;
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
        let answer = stage.client.send(&progress).await;
        assert_eq!(answer.status, 202, "{way:?}");
        until("a new session", || !stage.server.sessions().is_empty()).await;

        // The stream of a GET, which the same answer meets; where that is itself a stream, it is
        // what the server has to say.
        if way.headers[0].1 == "text/event-stream" {
            continue;
        }
        let stage = forgotten(way.clone()).await;
        let twin = stage.client.clone();
        let listens = || {
            let sessions = stage.server.sessions();
            sessions.first().is_some_and(|session| session.listens == 1)
        };
        tokio::select! {
            () = until("a stream in a new session", listens) => {}
            // Its head may come only with the first event.
            () = async { _ = twin.get().send().await; std::future::pending().await } => {}
        }
    }
}

#[tokio::test]
async fn answers_that_are_not_the_fingerprint_pass_as_ever() {
    let result = r#"{"jsonrpc":"2.0","id":$id,"result":{"content":[{"type":"text","text":"who are you again?"}]}}"#;
    let other = r#"{"jsonrpc":"2.0","id":$id,"error":{"code":-32099,"message":"no"}}"#;
    for (own, code) in [
        (Canned::json(200, result), None),
        (Canned::json(200, other), Some(-32099)),
        (Canned::json(500, other), Some(-32099)),
        (Canned::plain(401, "no"), Some(-31003)),
    ] {
        let stage = knowing(&Canned::plain(own.status, "")).await;
        let rule = stage
            .proxy
            .next(1, When::tool("bump"), Fault::Answer(own.clone()));
        let answer = stage.call("bump", "k").await;
        assert_eq!(answer.failure(), code, "{own:?}: {answer:?}");
        assert_eq!(rule.met(), 1);
        stage.works_after(1).await;
    }
}

/// A fingerprint with 200 makes every answer suspect; streams and long answers still pass.
#[tokio::test]
async fn a_fingerprint_with_200_holds_nothing_up() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    let recovery = &mut config.servers.values_mut().next().unwrap().recovery;
    recovery.fingerprints = vec![print(200, Some(-32099), None)];
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;

    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "one");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    assert_eq!(events.next_message().await.1["id"], 7);
    drop(pen);
    events.ends_cleanly().await;

    let long = json!({"text": "x".repeat(10 << 20)});
    let answer = client
        .send_to(&mut server, &call(8), |asked| asked.result(&long))
        .await;
    assert_eq!(answer.json()["result"], long);
    server.finish();
}

#[tokio::test]
async fn without_the_fingerprint_401_and_403_are_no_losses() {
    for (status, code) in [(401, -31003), (403, -31002)] {
        let stage = Stage::set().await;
        let refusing = Fault::Answer(Canned::json(status, GONE));
        let call = stage.proxy.next(1, When::tool("read"), refusing.clone());
        let answer = stage.call("read", "k").await;
        // It is the server's own answer, and so its word.
        assert_eq!((answer.failure(), call.met()), (Some(-32099), 1));

        // Nor is a recovery that meets one tried again.
        stage.server.forget_sessions();
        let opening = stage.proxy.always(When::rpc("initialize"), refusing);
        let answer = stage.call("read", "k").await;
        assert_eq!(
            (answer.failure(), opening.met()),
            (Some(code), 1),
            "{answer:?}"
        );
        opening.remove();
        stage.works_after(2).await;
    }
}
