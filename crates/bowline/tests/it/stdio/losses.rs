//! A process that dies takes its session with it, and the client does not notice; nothing runs twice.

use serde_json::json;

use crate::kit::gateway::{admin, health, only, with_admin};
use crate::kit::messages::note;
use crate::kit::programs::{Play, kill, text_of};

#[tokio::test]
async fn a_process_that_died_between_calls_is_replaced() {
    let play = Play::open().await;
    for round in 1..=3 {
        kill(play.pid().await).await;
        let key = format!("round {round}");
        let answer = play.call("bump", &json!({"key": key})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(play.tally.count(&format!("bump {key}")), 1);
        assert_eq!(play.tally.starts(), round + 1);
    }
}

#[tokio::test]
async fn what_may_have_run_is_told_and_what_is_safe_runs_again() {
    for then in ["exit", "abort"] {
        let play = Play::open().await;
        let unsafe_call = play.call("bump", &json!({"key": "k", "then": then})).await;
        assert_eq!(unsafe_call.failure(), Some(-31001), "{unsafe_call:?}");
        assert_eq!(play.tally.count("bump k"), 1);
        play.learn_tools().await;
        let safe_call = play.call("peek", &json!({"key": "k", "then": then})).await;
        assert_eq!(safe_call.status, 200);
        assert!(!text_of(&safe_call).is_empty());
        assert_eq!(play.tally.count("peek k"), 2);
        assert_eq!(play.tally.starts(), 3);
    }
}

#[tokio::test]
async fn a_safe_call_is_answered_at_every_death_without_a_list() {
    let play = Play::open().await;
    for round in 1..=3 {
        // Each process is listed once: at the first call, and after a recovery.
        for _ in 0..2 {
            let before = play.call("peek", &json!({"key": "before"})).await;
            assert_eq!(before.status, 200, "{before:?}");
            play.tally.until("listed", round).await;
        }
        let key = format!("round {round}");
        let dies = json!({"key": key, "then": "exit"});
        let answer = play.call("peek", &dies).await;
        assert_eq!(answer.failure(), None, "{answer:?}");
        assert_eq!(play.tally.count(&format!("peek {key}")), 2);
    }
    play.tally.until("listed", 4).await;
    let dies = json!({"key": "k", "then": "exit"});
    let unsafe_call = play.call("bump", &dies).await;
    assert_eq!(unsafe_call.failure(), Some(-31001), "{unsafe_call:?}");
    assert_eq!(play.tally.count("bump k"), 1);
}

#[tokio::test]
async fn a_safe_call_is_answered_although_several_processes_die_under_it() {
    let play = Play::open().await;
    let key = json!({"key": "k"});
    let killing = async {
        for times in 1..=3 {
            play.tally.until("wait_safely k", times).await;
            let pids = play.tally.pids();
            kill(*pids.last().unwrap()).await;
        }
        play.tally.until("wait_safely k", 4).await;
        play.tally.go_on();
    };
    let (answer, ()) = tokio::join!(play.call("wait_safely", &key), killing);
    assert_eq!(answer.failure(), None, "{answer:?}");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_call() {
    let play = Play::open().await;
    let pid = play.pid().await;
    let hang = json!({"key": "k"});
    let killing = async {
        play.tally.until("hang k", 1).await;
        kill(pid).await;
    };
    let (answer, ()) = tokio::join!(play.call("hang", &hang), killing);
    assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    play.learn_tools().await;
    let pid = play.pid().await;
    let killing = async {
        play.tally.until("hang_once k", 1).await;
        kill(pid).await;
    };
    let (answer, ()) = tokio::join!(play.call("hang_once", &hang), killing);
    assert_eq!(text_of(&answer), "answered");
    assert_eq!(play.tally.count("hang k"), 1);
}

#[tokio::test]
async fn what_the_client_had_set_is_set_again() {
    let play = Play::open().await;
    let set = |method: &str, params| json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
    let level = set("logging/setLevel", json!({"level": "debug"}));
    assert_eq!(play.client.send(&level).await.status, 200);
    let uri = set("resources/subscribe", json!({"uri": "file:///x"}));
    assert_eq!(play.client.send(&uri).await.status, 200);
    kill(play.pid().await).await;
    assert_eq!(play.call("echo", &json!({"text": "x"})).await.status, 200);
    for said in [
        "heard notifications/initialized",
        "level \"debug\"",
        "subscribe \"file:///x\"",
    ] {
        assert_eq!(play.tally.count(said), 2, "{said}");
    }
}

#[tokio::test]
async fn the_stream_of_a_get_goes_on_with_the_next_process() {
    let play = Play::open().await;
    let mut get = play.client.listen().await;
    kill(play.pid().await).await;
    // The stream itself notices, and its client hears that lists may have changed.
    let mut methods = Vec::new();
    while methods.len() < 2 {
        methods.push(get.next_message().await.1["method"].clone());
    }
    assert!(
        methods.contains(&json!("notifications/tools/list_changed")),
        "{methods:?}"
    );
    let arguments = json!({"method": "notifications/message"});
    // Until the stream is read from the new process, the call's own stream has what comes.
    while play.call("notify", &arguments).await.messages().len() > 1 {}
    while get.next_message().await.1["method"] != "notifications/message" {}
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn a_notification_to_a_process_that_died_recovers_it() {
    let play = Play::open().await;
    kill(play.pid().await).await;
    let changed = note("notifications/roots/list_changed");
    assert_eq!(play.client.send(&changed).await.status, 202);
    play.tally
        .until("heard notifications/roots/list_changed", 1)
        .await;
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn where_the_client_is_to_be_told_it_gets_a_404() {
    let play = Play::open_with(|config| {
        only(config).recovery.on_loss = bowline::config::OnLoss::Tell;
    })
    .await;
    kill(play.pid().await).await;
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn a_program_that_exits_at_once_says_why_and_is_not_started_again_and_again() {
    let mut play = Play::start(|config| {
        with_admin(config);
        start(config, "exit");
    })
    .await;
    let refused = play.client.initialize().await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let error = refused.json()["error"].clone();
    assert_eq!(error["data"]["reason"], "process_failed");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exit code 3"), "{message}");
    assert!(message.contains("cannot start: no licence"), "{message}");
    assert!(refused.headers.contains_key("retry-after"));
    let starts = play.tally.starts();
    assert_eq!(starts, 1, "tried once for one client");
    for _ in 0..20 {
        assert_eq!(play.client.initialize().await.status, 503);
    }
    assert!(play.tally.starts() <= starts + 2, "{}", play.tally.starts());
    let server = health(&play.gateway).await["servers"]["s"].clone();
    let reason = server["endpoints"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("no licence"), "{server}");
    let metrics = admin(&play.gateway, "/metrics").await.text;
    assert!(
        metrics.contains("bowline_process_failures_total{server=\"s\"}"),
        "{metrics}"
    );
    assert!(
        metrics.contains("bowline_processes{server=\"s\"} 0"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named() {
    let mut play = Play::start(|config| {
        let command = bowline::config::Command::new("/no/such/program", Vec::new());
        only(config).target = bowline::config::Target::Command(command);
    })
    .await;
    let refused = play.client.initialize().await;
    assert_eq!(refused.status, 503);
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("/no/such/program"), "{message}");
}

fn start(config: &mut bowline::config::Config, how: &str) {
    let bowline::config::Target::Command(command) = &mut only(config).target else {
        panic!("not a command");
    };
    let start = bowline_testbed::stdio::START.to_owned();
    command.env.insert(start, how.to_owned());
}

/// The server says it while no client listens: what was listed before counts no longer.
#[tokio::test]
async fn that_the_tools_changed_counts_from_when_it_is_received() {
    let play = Play::open().await;
    let early = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"early"}]}}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    // Nobody waits for anything when it comes.
    let answer = play
        .call("write", &json!({"lines": [early, changed]}))
        .await;
    assert_eq!(text_of(&answer), "early");
    play.tally.until("listed", 1).await;
    // Under another id: the server still answers the first one.
    let answer = play.client.call(8, "peek", &json!({"key": "k"})).await;
    assert_eq!(answer.failure(), None, "{answer:?}");
    play.tally.until("listed", 2).await;
}
