//! An answer that cannot be read: its call learns that at once, and no other call suffers unless nobody knows
//! whose answer it was.

use serde_json::json;

use crate::kit::log::Log;
use crate::kit::messages::note;
use crate::kit::programs::{Play, text_of};
use crate::kit::wait::until;

#[tokio::test]
async fn a_call_learns_at_once_that_its_answer_cannot_be_read() {
    for how in ["cut", "latin"] {
        let log = Log::default();
        let _kept = log.keep();
        let play = Play::open().await;
        let garbled = json!({"key": "k", "how": how});
        let answer = play.call("garble", &garbled).await;
        assert_eq!(answer.failure(), Some(-31001), "{how}: {answer:?}");
        assert_eq!(play.tally.count("garble k"), 1);
        // No ping waits for an answer any more that may be the next that cannot be read.
        until("the session is found alive", || {
            !log.lines_with("session still alive").is_empty()
        })
        .await;
        // What is safe is asked again, of the same process.
        let answer = play.call("garble_once", &garbled).await;
        assert_eq!(text_of(&answer), "answered");
        assert_eq!(play.tally.count("garble_once k"), 2);
        assert_eq!(play.tally.starts(), 1, "{how}");
        let mut told = log.lines_with("a message on stdout is not JSON in UTF-8");
        // The sum of a process that has ended, perhaps of the round before.
        told.retain(|line| !line.contains("count="));
        assert_eq!(told.len(), 1, "{told:#?}");
        assert!(!told[0].contains("jsonrpc"), "a message may hold secrets");
    }
}

#[tokio::test]
async fn with_broken_characters_it_is_known_whose_answer_it_was() {
    let play = Play::open().await;
    let key = json!({"key": "k"});
    let hanging = play.client.call(11, "hang", &key);
    let garbling = async {
        play.tally.until("hang k", 1).await;
        let garbled = json!({"key": "k", "how": "latin"});
        let answer = play.call("garble", &garbled).await;
        assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
        assert_eq!(
            text_of(&play.call("echo", &json!({"text": "x"})).await),
            "x"
        );
        let mut cancel = note("notifications/cancelled");
        cancel["params"] = json!({"requestId": 11});
        assert_eq!(play.client.send(&cancel).await.status, 202);
    };
    let (hanging, ()) = tokio::join!(hanging, garbling);
    assert_ne!(hanging.failure(), Some(-31001), "{hanging:?}");
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn if_nobody_knows_whose_answer_it_was_all_learn_it() {
    let play = Play::open().await;
    let key = json!({"key": "k"});
    let hanging = play.client.call(11, "hang", &key);
    let garbling = async {
        play.tally.until("hang k", 1).await;
        play.call("garble", &json!({"key": "k", "how": "cut"}))
            .await
    };
    let (hanging, garbled) = tokio::join!(hanging, garbling);
    assert_eq!(hanging.failure(), Some(-31001), "{hanging:?}");
    assert_eq!(garbled.failure(), Some(-31001), "{garbled:?}");
    assert_eq!(
        text_of(&play.call("echo", &json!({"text": "x"})).await),
        "x"
    );
    for ran in ["hang k", "garble k"] {
        assert_eq!(play.tally.count(ran), 1, "{ran}");
    }
    assert_eq!(play.tally.starts(), 2);
}

/// What a server logs on stdout as JSON, while the call with this id waits.
fn logs(id: u64) -> Vec<String> {
    [
        json!({"id": id, "result": {"content": [{"type": "text", "text": "a log"}]}}),
        json!({"id": id, "level": "error", "error": {"code": 1, "message": "a log"}}),
        json!({"id": id, "error": {"message": "a log"}, "about": {"jsonrpc": "2.0"}}),
        json!({"jsonrpc": "1.0", "id": id, "result": {}}),
    ]
    .map(|line| line.to_string())
    .into()
}

#[tokio::test]
async fn a_log_in_json_is_no_answer() {
    let play = Play::open().await;
    let written = play.call("write", &json!({"lines": logs(7)})).await;
    assert_eq!(text_of(&written), "written");
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), 1);
}

const NOBODYS: &str =
    r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#;

#[tokio::test]
async fn an_error_without_an_id_is_for_the_only_call_that_waits() {
    let play = Play::open().await;
    let answer = play.call("write", &json!({"lines": [NOBODYS]})).await;
    assert_eq!(answer.failure(), Some(-32700), "{answer:?}");
    assert_eq!(answer.messages().pop().unwrap()["id"], 7);
    // Under another id: the server still answers the first one.
    let answer = play.client.call(8, "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn an_error_without_an_id_ends_all_calls_that_wait_and_not_the_session() {
    let play = Play::open().await;
    let key = json!({"key": "k"});
    let hanging = play.client.call(11, "hang", &key);
    let failing = async {
        play.tally.until("hang k", 1).await;
        // It runs again, because it may.
        play.call("write", &json!({"lines": [NOBODYS]})).await
    };
    let (hanging, _) = tokio::join!(hanging, failing);
    assert_eq!(hanging.failure(), Some(-31001), "{hanging:?}");
    assert_eq!(play.tally.count("hang k"), 1);
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn two_calls_under_one_id_get_their_own_answers() {
    let play = Play::open().await;
    let key = json!({"key": "k"});
    let waiting = play.client.call(7, "wait", &key);
    let echoing = async {
        play.tally.until("wait k", 1).await;
        let echoed = play.call("echo", &json!({"text": "echoed"})).await;
        assert_eq!(text_of(&echoed), "echoed");
        assert_eq!(echoed.messages().pop().unwrap()["id"], 7);
        std::fs::write(play.tally.path().with_extension("go"), "").unwrap();
    };
    let (waited, ()) = tokio::join!(waiting, echoing);
    assert_eq!(text_of(&waited), "x");
    assert_eq!(waited.messages().pop().unwrap()["id"], 7);
}
