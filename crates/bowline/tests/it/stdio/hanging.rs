//! A process that hangs: once a call got no answer in time, it must answer a ping, or it is replaced.

use std::time::Duration;

use bowline::config::Config;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::log::Log;
use crate::kit::programs::{Play, signal, text_of, until_gone};

/// A call may take three seconds, and a process one to answer a ping.
fn hurried(config: &mut Config) {
    only(config).call_timeout = Some(Duration::from_secs(3));
    only(config).recovery.budget = Duration::from_secs(6);
}

#[tokio::test]
async fn a_process_that_is_stopped_is_replaced_and_what_it_had_is_not_repeated() {
    let log = Log::default();
    let _kept = log.keep();
    let play = Play::open_with(hurried).await;
    let mut other = Client::new(&play.gateway);
    assert_eq!(other.begin().await.status, 200);
    let pid = play.pid().await;
    signal(pid, "-STOP");
    let late = play.call("bump", &json!({"key": "first"})).await;
    assert_eq!(late.failure(), Some(-31004), "{late:?}");
    // Under way when the process is ended, two seconds before its own time is over.
    let lost = play.client.call(8, "bump", &json!({"key": "second"})).await;
    assert_eq!(lost.failure(), Some(-31001), "{lost:?}");
    assert!(lost.text.contains("nor a ping"), "{lost:?}");
    until_gone(pid).await;
    let next = play.call("bump", &json!({"key": "third"})).await;
    assert_eq!(next.status, 200, "{next:?}");
    for (key, times) in [("first", 0), ("second", 0), ("third", 1)] {
        assert_eq!(play.tally.count(&format!("bump {key}")), times, "{key}");
    }
    assert_eq!(
        text_of(&other.call(1, "echo", &json!({"text": "x"})).await),
        "x"
    );
    assert_eq!(play.tally.starts(), 3);
    assert_eq!(log.lines_with("a session's process hangs").len(), 1);
}

#[tokio::test]
async fn a_process_that_reads_and_answers_nothing_is_replaced() {
    let play = Play::open_with(hurried).await;
    let pid = play.pid().await;
    let late = play.call("stop", &json!({"seconds": 600})).await;
    assert_eq!(late.failure(), Some(-31004), "{late:?}");
    until_gone(pid).await;
    assert_ne!(play.pid().await, pid);
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn a_process_that_answers_a_ping_stays() {
    let play = Play::open_with(hurried).await;
    let late = play.call("hang", &json!({"key": "k"})).await;
    assert_eq!(late.failure(), Some(-31004), "{late:?}");
    play.tally.until("ping", 1).await;
    assert_eq!(
        text_of(&play.call("echo", &json!({"text": "x"})).await),
        "x"
    );
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn one_that_never_answers_initialize_is_told_from_one_that_exits() {
    let mut play = Play::start(|config| {
        let bowline::config::Target::Command(command) = &mut only(config).target else {
            panic!("not a command");
        };
        let start = bowline_testbed::stdio::START.to_owned();
        command.env.insert(start, "silent".to_owned());
    })
    .await;
    let waiting = async {
        play.tally.until("thinking", 1).await;
        // What follows is only the gateway's patience.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(56)).await;
        tokio::time::resume();
    };
    let (refused, ()) = tokio::join!(play.client.initialize(), waiting);
    let error = refused.json()["error"].clone();
    assert_eq!(error["code"], -31004, "{refused:?}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("did not answer `initialize`"), "{message}");
    assert!(message.contains("thinking"), "{message}");
    for pid in play.tally.pids() {
        until_gone(pid).await;
    }
}
