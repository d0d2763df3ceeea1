//! What goes both ways on an open session, besides what the matrix has.

use std::time::Duration;

use serde_json::json;

use crate::kit::gateway::only;
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::programs::text_of;
use crate::kit::sse_server::{SsePlay, reason};
use crate::kit::wait::until;

#[tokio::test]
async fn answers_come_before_or_after_those_of_their_posts() {
    for answers_late in [false, true] {
        let play = SsePlay::open().await;
        play.server
            .behave(|manners| manners.answers_late = answers_late);
        let calls = (0..20).map(|number| {
            let (client, text) = (play.client.clone(), format!("text {number}"));
            async move {
                let answer = client.call(number, "echo", &json!({"text": text})).await;
                assert_eq!(text_of(&answer), text);
            }
        });
        let calls: tokio::task::JoinSet<()> = calls.collect();
        calls.join_all().await;
        let steps = play.call("progress", &json!({"steps": 3})).await;
        assert_eq!(text_of(&steps), "done 7");
        assert_eq!(play.tally.starts(), 1);
        play.assert_no_complaints();
    }
}

#[tokio::test]
async fn any_success_accepts_a_message() {
    for status in [200, 202, 204] {
        let play = SsePlay::open().await;
        play.server
            .behave(|manners| manners.post = Some((status, true)));
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x", "{status}");
    }
}

/// A refusal is the answer while the stream lives: it is told, not repeated, and the session goes on.
#[tokio::test]
async fn a_refusal_is_told_and_the_session_goes_on() {
    for status in [409, 413, 422, 429] {
        let play = SsePlay::open().await;
        play.server
            .behave(|manners| manners.post = Some((status, false)));
        let refused = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(reason(&refused).0, "upstream_declined", "{refused:?}");
        play.server.behave(|manners| manners.post = None);
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
        assert_eq!(play.tally.starts(), 1, "{status}");
    }
}

#[tokio::test]
async fn what_may_have_run_is_told_and_what_is_safe_is_repeated_while_the_session_lives() {
    let play = SsePlay::open_with(|config| {
        only(config).recovery.budget = Duration::from_secs(3);
    })
    .await;
    // The server fails once, so that a ping finds the session alive.
    play.server
        .behave(|manners| manners.post = Some((500, false)));
    let client = play.client.clone();
    let calling = async { client.call(1, "bump", &json!({"key": "k"})).await };
    let healing = async {
        until("the call was refused", || play.server.targets().len() > 4).await;
        play.server.behave(|manners| manners.post = None);
    };
    let (answer, ()) = tokio::join!(calling, healing);
    assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    let answer = play.call("peek", &json!({"key": "p"})).await;
    assert_eq!(answer.status, 200);
    assert_eq!(play.tally.count("bump k"), 0);
    assert_eq!(play.tally.starts(), 1);
}

/// The first attempt of a call that is repeated still runs, and tells its progress on the same stream under the same
/// token. The client is told each step once.
#[tokio::test]
async fn progress_of_two_attempts_is_told_once() {
    let play = SsePlay::open().await;
    // The first POST is taken, and seems to fail.
    play.server
        .behave(|manners| manners.post = Some((500, true)));
    let mut message = call(7);
    message["params"] = json!({"name": "wait_safely", "_meta": {"progressToken": "w"},
        "arguments": {"key": "k", "progress": true}});
    let repeating = async {
        play.tally.until("wait_safely k", 1).await;
        play.server.behave(|manners| manners.post = None);
        play.tally.until("wait_safely k", 2).await;
        // The first attempt is ahead.
        let told = json!({"jsonrpc": "2.0", "method": "notifications/progress",
            "params": {"progressToken": "w", "progress": 2}});
        play.server.inject(format!("data: {told}\n\n").as_bytes());
        std::fs::write(play.tally.path().with_extension("go"), "").unwrap();
    };
    let (answer, ()) = tokio::join!(play.client.send(&message), repeating);
    let told = answer.messages();
    let steps = told
        .iter()
        .filter(|told| told["method"] == "notifications/progress");
    let steps: Vec<_> = steps
        .map(|told| told["params"]["progress"].as_u64())
        .collect();
    assert_eq!(steps, [Some(1), Some(2)], "{answer:?}");
    assert!(answer.to(&json!(7)).unwrap()["result"].is_object());
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn a_cancelled_call_ends_although_the_server_never_answers_it() {
    let play = SsePlay::open().await;
    let hang = json!({"key": "k"});
    let cancelling = async {
        play.tally.until("hang k", 1).await;
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": 7}});
        assert_eq!(play.client.send(&cancel).await.status, 202);
    };
    let (answer, ()) = tokio::join!(play.call("hang", &hang), cancelling);
    assert!(answer.failure().is_some(), "{answer:?}");
    play.tally.until("cancelled 7", 1).await;
    assert_eq!(play.tally.starts(), 1);
}

/// A question of the server's that comes while the connection for a call is still being made does not take the
/// call's place.
#[tokio::test]
async fn a_call_is_sent_although_the_server_asks_something_before() {
    let play = SsePlay::open().await;
    // Every message needs a connection, so it takes a while until it is written.
    play.server.behave(|manners| manners.closes = true);
    for round in 0..10 {
        let question = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":\"q{round}\",\"method\":\"roots/list\"}}\n\n"
        );
        play.server.inject(question.as_bytes());
        let bump = json!({"key": format!("k{round}")});
        let calling = tokio::time::timeout(Duration::from_secs(10), play.call("bump", &bump));
        let answer = calling.await.expect("the call was sent and answered");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(play.tally.count(&format!("bump k{round}")), 1);
    }
    assert_eq!(play.tally.starts(), 1);
    play.assert_no_complaints();
}

/// A stream that is open and dead is found out by the call that it does not answer.
#[tokio::test]
async fn a_stream_that_hangs_is_replaced() {
    let log = Log::default();
    let _kept = log.keep();
    let play = SsePlay::open_with(|config| {
        only(config).call_timeout = Some(Duration::from_millis(300));
        only(config).recovery.budget = Duration::from_secs(3);
    })
    .await;
    // It takes messages, and nothing comes on the stream any more.
    play.server
        .behave(|manners| manners.post = Some((202, false)));
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert!(answer.failure().is_some(), "{answer:?}");
    until("the stream is closed", || play.server.sessions() == 0).await;
    assert_eq!(log.lines_with("a session's stream hangs").len(), 1);
    play.server.behave(|manners| manners.post = None);
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn the_end_of_the_session_closes_the_stream() {
    let play = SsePlay::open().await;
    assert_eq!(play.server.sessions(), 1);
    assert!(play.client.end().await.status.is_success());
    until("no session", || play.server.sessions() == 0).await;
}

#[tokio::test]
async fn a_gateway_that_stops_closes_its_streams() {
    let play = SsePlay::open().await;
    play.gateway.stop().await;
    until("no session", || play.server.sessions() == 0).await;
}
