//! `call_timeout`: no answer and no progress in time is told, and the server is told, too.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::gateway::{only, refusals, with_admin};
use crate::kit::messages::{call, note};
use crate::kit::opened::{BATCHING, opened_speaking, opened_with};

const LIMIT: Duration = Duration::from_millis(300);

async fn limited() -> (Gateway, Scripted, Client) {
    opened_with(|config| {
        with_admin(config);
        only(config).call_timeout = Some(LIMIT);
    })
    .await
}

async fn expect_cancel(server: &mut Scripted, id: Value) {
    let asked = server.next().await;
    assert_eq!(asked.rpc_method(), "notifications/cancelled");
    assert_eq!(asked.json()["params"]["requestId"], id);
    asked.reply(202, &[], "");
}

#[tokio::test]
async fn no_answer_in_time_is_told_in_band() {
    let (gateway, mut server, client) = limited().await;
    let message = call("slow");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let _silent = server.next().await;
        expect_cancel(&mut server, json!("slow")).await;
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31004));
    assert_eq!(answer.json()["id"], "slow");
    assert_eq!(answer.json()["error"]["data"]["reason"], "deadline");
    assert_eq!(refusals(&gateway, "deadline").await, 1);
    server.finish();
}

#[tokio::test]
async fn progress_is_patience_and_the_stream_says_when_it_is_over() {
    let (gateway, mut server, client) = limited().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    let progress =
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n";
    let started = tokio::time::Instant::now();
    for _ in 0..4 {
        tokio::time::sleep(LIMIT / 2).await;
        pen.write(progress);
        assert_eq!(events.next().await, progress);
    }
    assert!(
        started.elapsed() > LIMIT,
        "longer than it would have had without progress"
    );
    // Other notifications are no progress.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n");
    events.next().await;
    let (_, last) = events.next_message().await;
    assert_eq!(
        (&last["id"], &last["error"]["code"]),
        (&json!(7), &json!(-31004))
    );
    events.ends_cleanly().await;
    assert_eq!(refusals(&gateway, "deadline").await, 1);
    expect_cancel(&mut server, json!(7)).await;
    server.finish();
}

#[tokio::test]
async fn an_answer_in_time_is_an_answer() {
    let (_gateway, mut server, client) = limited().await;
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    // The stream of a GET has no deadline.
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    tokio::time::sleep(LIMIT * 2).await;
    pen.write("data: late\n\n");
    assert_eq!(events.next().await, "data: late\n\n");
    server.finish();
}

#[tokio::test]
async fn a_recovery_is_waited_for_no_longer_and_goes_on_for_the_next_call() {
    let (gateway, mut server, client) = limited().await;
    let message = call(7);
    let (answer, opening) = tokio::join!(client.send(&message), async {
        let lost = server.next().await;
        lost.reply(404, &[("content-type", "text/plain")], "");
        let opening = server.next().await;
        assert_eq!(opening.rpc_method(), "initialize");
        opening
    });
    assert_eq!(answer.code(), -31004, "{answer:?}");
    assert_eq!(answer.json()["id"], 7);
    assert_eq!(refusals(&gateway, "deadline").await, 1);
    // Nobody waits for it any more, and still it is the one that is used.
    let (answer, ()) = tokio::join!(client.send(&message), async {
        opening.initialized(Some("u2"));
        let asked = server.next().await;
        assert_eq!(asked.rpc_method(), "tools/call");
        assert_eq!(asked.header("mcp-session-id"), "u2");
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    server.finish();
}

#[tokio::test]
async fn a_stream_that_was_gone_on_with_has_no_other_deadline() {
    for hangs in [true, false] {
        let (gateway, mut server, client) = limited().await;
        let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
        pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"one\"}\n\n");
        events.next().await;
        pen.cut();
        let resumed = server.next().await;
        assert_eq!(resumed.header("last-event-id"), "e1");
        // Whether its head comes or not, nothing does that would be progress.
        let _held = match hangs {
            true => Err(resumed),
            false => Ok(resumed.events()),
        };
        let (_, told) = events.next_message().await;
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&json!(7), &json!(-31004))
        );
        events.ends_cleanly().await;
        assert_eq!(refusals(&gateway, "deadline").await, 1);
        expect_cancel(&mut server, json!(7)).await;
    }
}

#[tokio::test]
async fn an_answer_is_not_followed_by_a_deadline() {
    let (gateway, mut server, client) = limited().await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(7))).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
    assert_eq!(events.next_message().await.1["id"], 7);
    // The stream stays open for longer than a call may take.
    tokio::time::sleep(LIMIT * 2).await;
    drop(pen);
    events.ends_cleanly().await;
    assert_eq!(refusals(&gateway, "deadline").await, 0);
    server.finish();
}

#[tokio::test]
async fn what_nobody_answers_has_a_deadline_too() {
    let (_gateway, mut server, client) = limited().await;
    // A notification, and an answer to the server's own question.
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n");
    let mark = events.next_message().await.1["id"].clone();
    for message in [
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}}),
        json!({"jsonrpc": "2.0", "id": mark, "result": {"roots": []}}),
    ] {
        let (answer, asked) = tokio::join!(client.send(&message), server.next());
        assert_eq!((answer.status.as_u16(), answer.code()), (504, -31004));
        asked.given_up().await;
    }
    let answer = client
        .send_to(&mut server, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_notification_that_hangs_does_not_stop_a_batch() {
    let (_gateway, mut server, client) = opened_speaking(BATCHING, |config| {
        // There is no `call_timeout`: the budget is the limit.
        only(config).recovery.budget = Duration::from_secs(1);
    })
    .await;
    let batch = json!([note("notifications/message"), call(7)]);
    let (answer, _hanging) = tokio::join!(client.send(&batch), async {
        let hanging = server.next().await;
        server.next().await.result(&json!({}));
        hanging
    });
    assert_eq!(answer.json()[0]["id"], 7, "{answer:?}");
    server.finish();
}
