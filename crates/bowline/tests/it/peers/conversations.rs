//! Everything of a session works at every gateway, with one process.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::fleet::{Fleet, calling};
use crate::kit::events::Events;
use crate::kit::messages::{assert_too_large, note};
use crate::kit::programs::{text_of, until_gone};
use crate::kit::wait::until;

#[tokio::test]
async fn calls_at_any_gateway_reach_the_one_process() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    let pid = fleet.pid(0).await;
    for gateway in [1, 2, 0, 1] {
        assert_eq!(fleet.pid(gateway).await, pid);
        let text = "grüße\n\u{2028}\"x\"";
        let answer = fleet
            .at(gateway)
            .call(1, "echo", &json!({"text": text}))
            .await;
        assert_eq!(answer.headers["content-type"], "application/json");
        assert_eq!(text_of(&answer), text);
    }
    // Side by side, at two gateways and at one.
    let (one, two) = (fleet.at(1), fleet.at(2));
    let bump = |key: &str| json!({ "key": key });
    let (a, b, c) = (bump("a"), bump("b"), bump("c"));
    let answers = tokio::join!(
        one.call(1, "bump", &a),
        two.call(2, "bump", &b),
        two.call(3, "bump", &c)
    );
    for answer in [answers.0, answers.1, answers.2] {
        assert_eq!(text_of(&answer), pid.to_string());
    }
    for key in ["bump a", "bump b", "bump c"] {
        assert_eq!(fleet.tally.count(key), 1);
    }
    assert_eq!(fleet.tally.starts(), 1);
    let accepted = fleet.count(1, "forwards", "accepted").await;
    assert!(accepted >= 5, "{accepted}");
    assert!(fleet.count(0, "forwards_received", "accepted").await >= accepted);
    assert_eq!(fleet.count(0, "forwards", "accepted").await, 0);
}

#[tokio::test]
async fn large_messages_pass_both_ways() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let fleet = fleet.open().await;
    let answer = fleet
        .at(1)
        .call(1, "large", &json!({"bytes": 40 << 20}))
        .await;
    assert_eq!(text_of(&answer).len(), 40 << 20);
    let large = json!({"bytes": 65 << 20});
    let answer = fleet.at(1).call(3, "large", &large).await;
    assert_too_large(&answer.messages()[0]);
    let text = "y".repeat(3 << 20);
    let answer = fleet.at(1).call(2, "echo", &json!({ "text": text })).await;
    assert_eq!(text_of(&answer), text);
}

#[tokio::test]
async fn progress_comes_before_the_answer() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let fleet = fleet.open().await;
    let mut message = calling(1, "progress", &json!({"steps": 3}));
    message["params"]["_meta"] = json!({"progressToken": "t"});
    let messages = fleet.at(1).send(&message).await.messages();
    assert_eq!(messages.len(), 4, "{messages:?}");
    for (step, message) in messages[..3].iter().enumerate() {
        assert_eq!(message["params"]["progress"], step + 1);
        assert_eq!(message["params"]["progressToken"], "t");
    }
    assert_eq!(messages[3]["id"], 1);
}

#[tokio::test]
async fn a_call_is_cancelled_at_another_gateway() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    // At a gateway that is not the owner, and at the owner.
    for (id, calls) in [(11, 1), (12, 0)] {
        let mut hanging = calling(
            id,
            "hang",
            &json!({"key": id.to_string(), "progress": true}),
        );
        hanging["params"]["_meta"] = json!({"progressToken": id});
        let response = fleet.at(calls).post(&hanging).send().await.unwrap();
        let mut stream = Events::new(response);
        assert_eq!(stream.next_message().await.1["params"]["progressToken"], id);
        let mut cancel = note("notifications/cancelled");
        cancel["params"] = json!({"requestId": id});
        assert_eq!(fleet.at(2).send(&cancel).await.status, 202);
        fleet.tally.until(&format!("cancelled {id}"), 1).await;
        assert!(stream.try_next().await.is_ok_and(|it| it.is_none()));
    }
    assert_eq!(fleet.tally.starts(), 1);
}

/// The process sees two ids, each call gets its own answer, and a cancel is for both.
#[tokio::test]
async fn two_calls_under_one_id_at_two_gateways() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    for (round, first, second) in [("a", 1, 2), ("b", 0, 1), ("c", 1, 0)] {
        let (hang, wait) = (
            json!({ "key": round }),
            calling(7, "hang", &json!({"key": round})),
        );
        let client = fleet.at(first);
        let calls = async {
            fleet.tally.until(&format!("hang {round}"), 1).await;
            let echoed = fleet
                .at(second)
                .call(7, "echo", &json!({"text": round}))
                .await;
            assert_eq!(text_of(&echoed), round);
            assert_eq!(echoed.messages().pop().unwrap()["id"], 7);
            let cancelling = async {
                fleet.tally.until(&format!("hang {round}"), 2).await;
                let mut cancel = note("notifications/cancelled");
                cancel["params"] = json!({"requestId": 7});
                assert_eq!(fleet.at(2).send(&cancel).await.status, 202);
            };
            let again = fleet.at(second);
            let (cancelled, ()) = tokio::join!(again.call(7, "hang", &hang), cancelling);
            assert_eq!(cancelled.failure(), Some(-32800), "{cancelled:?}");
        };
        let (cancelled, ()) = tokio::join!(client.send(&wait), calls);
        assert_eq!(cancelled.failure(), Some(-32800), "{cancelled:?}");
    }
    // Each of them under an id of its own.
    let cancelled = || {
        let noted = std::fs::read_to_string(fleet.tally.path()).unwrap();
        let cancelled = noted.lines().filter(|line| line.starts_with("cancelled "));
        cancelled.map(str::to_owned).collect::<HashSet<_>>()
    };
    until("six cancels", || cancelled().len() == 6).await;
    assert_eq!(fleet.tally.starts(), 1);
}

#[tokio::test]
async fn a_question_of_the_server_is_answered_at_another_gateway() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    for asks in [1, 0] {
        let arguments = json!({"method": "elicitation/create", "params": {"x": 1}});
        let asking = fleet.at(asks).post(&calling(5, "ask", &arguments)).send();
        let mut stream = Events::new(asking.await.unwrap());
        let (_, question) = stream.next_message().await;
        assert_eq!(question["method"], "elicitation/create");
        let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": {"y": 2}});
        assert_eq!(fleet.at(2).send(&answer).await.status, 202);
        let (_, answered) = stream.next_message().await;
        let text = answered["result"]["content"][0]["text"].as_str().unwrap();
        let heard: Value = serde_json::from_str(text).unwrap();
        assert_eq!(heard["result"]["y"], 2);
    }
}

#[tokio::test]
async fn a_stream_is_listened_to_at_another_gateway() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    let mut get = fleet.at(1).listen().await;
    let notify = json!({"method": "notifications/message", "times": 2});
    for gateway in [2, 0] {
        let answer = fleet.at(gateway).call(1, "notify", &notify).await;
        assert_eq!(text_of(&answer), "notified");
        for number in 0..2 {
            let (_, message) = get.next_message().await;
            assert_eq!(message["params"]["data"], number);
        }
    }
    // A newer one takes its place, wherever it is.
    let mut newer = fleet.at(2).listen().await;
    get.ends_cleanly().await;
    fleet.at(1).call(2, "notify", &notify).await;
    assert_eq!(newer.next_message().await.1["params"]["data"], 0);
}

#[tokio::test]
async fn a_session_that_is_ended_at_another_gateway_has_no_process() {
    let Some(fleet) = Fleet::start(3).await else {
        return;
    };
    let fleet = fleet.open().await;
    let pid = fleet.pid(1).await;
    assert_eq!(fleet.at(1).end().await.status, 204);
    until_gone(pid).await;
    for gateway in 0..3 {
        let answer = fleet
            .at(gateway)
            .call(1, "bump", &json!({"key": "late"}))
            .await;
        assert_eq!(answer.status, 404, "{answer:?}");
    }
    assert_eq!(
        (fleet.tally.count("bump late"), fleet.tally.starts()),
        (0, 1)
    );
}

#[tokio::test]
async fn what_a_client_left_goes_on_and_its_session_too() {
    let Some(fleet) = Fleet::start(2).await else {
        return;
    };
    let fleet = fleet.open().await;
    let waiting = calling(1, "wait", &json!({"key": "left"}));
    {
        let client = fleet.at(1);
        let call = client.send(&waiting);
        tokio::select! {
            _ = call => panic!("it waits"),
            () = fleet.tally.until("wait left", 1) => {}
        }
    }
    assert_eq!(fleet.pid(1).await, fleet.pid(0).await);
    std::fs::write(fleet.tally.path().with_extension("go"), "").unwrap();
    let answer = fleet.at(1).call(2, "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(
        (fleet.tally.count("wait left"), fleet.tally.starts()),
        (1, 1)
    );
}
