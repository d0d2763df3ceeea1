//! What a client does, and what it must see.

use serde_json::{Value, json};

use super::stage::Stage;
use crate::kit::messages::note;

/// The answer that tells a client that nobody knows whether its call ran.
const OUTCOME_UNKNOWN: i64 = -31001;

pub(super) async fn opens(mut stage: Stage) {
    stage.disturb().await;
    assert_eq!(stage.ask("ping", json!({})).await, json!({}));
    stage.assert_sessions();
    let heard = 1 + usize::from(stage.is_killed);
    let ready = "heard notifications/initialized";
    assert_eq!(stage.tally.count(ready), heard);
}

pub(super) async fn lists(mut stage: Stage) {
    let first = stage.ask("tools/list", json!({})).await;
    stage.disturb().await;
    let cursor = json!({"cursor": first["nextCursor"]});
    let second = stage.ask("tools/list", cursor).await;
    assert!(second.get("nextCursor").is_none(), "{second}");
    let names = |page: &Value| -> Vec<String> {
        let tools = page["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].to_string()).collect()
    };
    let mut all = [names(&first), names(&second)].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 15);
    stage.assert_sessions();
}

/// Calls that must not run twice, one of them under way when the session is lost.
pub(super) async fn calls(mut stage: Stage) {
    stage.call("a", "bump", json!({"key": "a"})).await;
    stage.begin("w", "wait", json!({"key": "w"})).await;
    stage.tally.until("wait w", 1).await;
    stage.disturb().await;
    match stage.is_killed {
        true => assert_eq!(stage.code("w").await, OUTCOME_UNKNOWN),
        false => {
            stage.go_on();
            stage.text("w").await;
        }
    }
    stage.call("b", "bump", json!({"key": "b"})).await;
    for ran in ["bump a", "wait w", "bump b"] {
        assert_eq!(stage.tally.count(ran), 1, "{ran}");
    }
    stage.assert_sessions();
}

/// The same with a call that may run twice: the client does not notice.
pub(super) async fn calls_safely(mut stage: Stage) {
    stage.begin("w", "wait_safely", json!({"key": "w"})).await;
    stage.tally.until("wait_safely w", 1).await;
    stage.disturb().await;
    let runs = 1 + usize::from(stage.is_killed);
    stage.tally.until("wait_safely w", runs).await;
    stage.go_on();
    stage.text("w").await;
    assert_eq!(stage.tally.count("wait_safely w"), runs);
    stage.assert_sessions();
}

/// No progress is told twice.
pub(super) async fn progresses(mut stage: Stage) {
    let arguments = json!({"key": "w", "progress": true});
    stage.begin("w", "wait_safely", arguments).await;
    let first = stage.front.hear_of("notifications/progress").await;
    stage.disturb().await;
    stage.go_on();
    let second = stage.front.hear_of("notifications/progress").await;
    let progress = |message: &Value| message["params"]["progress"].as_u64();
    assert_eq!((progress(&first), progress(&second)), (Some(1), Some(2)));
    assert_eq!(first["params"]["progressToken"], "w");
    stage.text("w").await;
    stage.assert_sessions();
}

pub(super) async fn cancels(mut stage: Stage) {
    stage.begin("h", "hang", json!({"key": "k"})).await;
    stage.tally.until("hang k", 1).await;
    stage.disturb().await;
    if stage.is_killed {
        assert_eq!(stage.code("h").await, OUTCOME_UNKNOWN);
    }
    let mut cancel = note("notifications/cancelled");
    cancel["params"] = json!({"requestId": "h"});
    stage.front.say(&cancel).await;
    if !stage.is_killed {
        stage.tally.until("cancelled \"h\"", 1).await;
    }
    assert_eq!(stage.call("e", "echo", json!({"text": "x"})).await, "x");
    assert_eq!(stage.tally.count("hang k"), 1);
    stage.assert_sessions();
}

pub(super) async fn samples(stage: Stage) {
    asks(stage, "sampling/createMessage").await;
}

pub(super) async fn elicits(stage: Stage) {
    asks(stage, "elicitation/create").await;
}

/// The server asks the client, during a call. A question of a session that is lost dies with it.
async fn asks(mut stage: Stage, method: &str) {
    let arguments = json!({"method": method, "params": {"message": "?"}});
    stage.begin("q", "ask", arguments.clone()).await;
    let mut question = stage.front.hear_of(method).await;
    stage.disturb().await;
    if stage.is_killed {
        assert_eq!(stage.code("q").await, OUTCOME_UNKNOWN);
        // An answer that comes too late is for nobody.
        reply(&mut stage, &question, "late").await;
        stage.begin("q", "ask", arguments).await;
        question = stage.front.hear_of(method).await;
    }
    assert_eq!(question["params"]["message"], "?");
    reply(&mut stage, &question, "here").await;
    let heard: Value = serde_json::from_str(&stage.text("q").await).unwrap();
    assert_eq!(heard["result"]["said"], "here");
    stage.assert_sessions();
}

async fn reply(stage: &mut Stage, question: &Value, said: &str) {
    let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"said": said}});
    stage.front.say(&answer).await;
}

/// What the client has set is set again, and what the server says unasked arrives.
pub(super) async fn subscribes(mut stage: Stage) {
    stage
        .ask("logging/setLevel", json!({"level": "debug"}))
        .await;
    stage
        .ask("resources/subscribe", json!({"uri": "file:///x"}))
        .await;
    let updated = "notifications/resources/updated";
    let notify = json!({"method": updated});
    stage.call("n", "notify", notify.clone()).await;
    stage.front.hear_of(updated).await;
    stage.disturb().await;
    stage.call("m", "notify", notify).await;
    stage.front.hear_of(updated).await;
    for set in ["level \"debug\"", "subscribe \"file:///x\""] {
        let times = 1 + usize::from(stage.is_killed);
        assert_eq!(stage.tally.count(set), times, "{set}");
    }
    stage.assert_sessions();
}

/// More than any place on the way holds; where the server is killed, which is another question, more than is passed on
/// whole. Such answers are what takes longest here.
fn many_bytes(stage: &Stage) -> usize {
    if stage.is_killed { 1 << 20 } else { 5 << 20 }
}

pub(super) async fn passes_large_results(mut stage: Stage) {
    let bytes = many_bytes(&stage);
    for id in ["before", "after"] {
        let text = stage.call(id, "large", json!({"bytes": bytes})).await;
        assert_eq!(text.len(), bytes);
        if id == "before" {
            stage.disturb().await;
        }
    }
    stage.assert_sessions();
}

/// The answer follows on a stream that has begun.
pub(super) async fn streams_large_results(mut stage: Stage) {
    let bytes = many_bytes(&stage);
    let arguments = json!({"key": "w", "progress": true, "bytes": bytes});
    stage.begin("w", "wait_safely", arguments).await;
    stage.front.hear_of("notifications/progress").await;
    stage.disturb().await;
    stage.go_on();
    assert_eq!(stage.text("w").await.len(), bytes);
    stage.assert_sessions();
}

pub(super) async fn keeps_every_character(mut stage: Stage) {
    let text = "grüße\n\r\n\u{2028}\u{2029}\u{85}\u{feff}\t\"\\/\0 😀 data: x\n\nid: 1";
    for id in ["before", "\u{2028}\nafter\""] {
        let arguments = json!({"text": text});
        assert_eq!(stage.call(id, "echo", arguments).await, text);
        if id == "before" {
            stage.disturb().await;
        }
    }
    stage.assert_sessions();
}

/// Nothing is left at the server, also if the session was recovered there.
pub(super) async fn ends(mut stage: Stage) {
    stage.disturb().await;
    stage.call("a", "bump", json!({"key": "a"})).await;
    stage.assert_sessions();
    stage.end().await;
}
