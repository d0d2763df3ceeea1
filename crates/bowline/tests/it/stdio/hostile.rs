//! Processes that write nonsense, too much, or do not read: their own session may suffer, no other does, and
//! the log says so once.

use std::time::Duration;

use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::log::Log;
use crate::kit::messages::assert_too_large;
use crate::kit::programs::{Play, signal, text_of};
use crate::kit::wait::until;

const ODD: &str = "a process wrote what it should not";

/// Another client of the same gateway, with a session of its own.
async fn other(play: &Play) -> Client {
    let mut other = Client::new(&play.gateway);
    assert_eq!(other.begin().await.status, 200);
    other
}

async fn echoes(client: &Client) {
    let answer = client.call("e", "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
}

#[tokio::test]
async fn nonsense_on_stdout_is_dropped_and_told_once() {
    let log = Log::default();
    let _kept = log.keep();
    let play = Play::open().await;
    let nonsense = json!({"times": 1000, "binary": true, "lines": [
        "Listening on port 8080",
        "{}",
        "[1, 2",
        "[info] ready",
        r#"{"level":30,"msg":"ready"}"#,
        r#"sent {"jsonrpc":"2.0","id":7,"result":{}}"#,
        "{'jsonrpc': '2.0'}",
        "",
        r#"{"jsonrpc":"2.0","id":"never asked","result":{}}"#,
    ]});
    assert_eq!(text_of(&play.call("write", &nonsense).await), "written");
    echoes(&play.client).await;
    let told = log.lines_with(ODD);
    assert_eq!(told.len(), 4, "one for each kind: {told:#?}");
    assert!(log.contains("Listening on port 8080"));
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn of_a_thousand_answers_to_one_request_the_first_counts() {
    let log = Log::default();
    let _kept = log.keep();
    let play = Play::open().await;
    let answer =
        r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"first"}]}}"#;
    let answers = json!({"times": 1000, "lines": [answer]});
    assert_eq!(text_of(&play.call("write", &answers).await), "first");
    echoes(&play.client).await;
    assert_eq!(log.lines_with(ODD).len(), 1);
}

#[tokio::test]
async fn a_batch_of_a_process_is_taken_apart() {
    let play = Play::open().await;
    let batch = r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{}},
        {"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"in a batch"}]}}]"#;
    let batch = batch.replace('\n', "");
    let answer = play.call("write", &json!({"lines": [batch]})).await;
    assert_eq!(answer.messages().len(), 2, "{answer:?}");
    assert_eq!(text_of(&answer), "in a batch");
}

/// The memory of this process, in MiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.unwrap().trim().trim_end_matches(" kB").trim();
    kib.parse::<u64>().unwrap() / 1024
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_told_and_the_process_goes_on() {
    let play = Play::open().await;
    let hang = json!({"key": "k"});
    let waiting = play.client.call("waits", "hang", &hang);
    let calling = async {
        play.tally.until("hang k", 1).await;
        let answer = play.call("large", &json!({"bytes": 65 << 20})).await;
        assert_too_large(&answer.messages()[0]);
        // The one that waits beside it goes on, and so does the process.
        echoes(&play.client).await;
    };
    tokio::select! {
        answer = waiting => panic!("{answer:?}"),
        () = calling => {}
    }
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_the_one_of_its_id_wherever_that_stands() {
    let play = Play::open().await;
    let hang = json!({"key": "k"});
    let waiting = play.client.call("waits", "hang", &hang);
    let calling = async {
        play.tally.until("hang k", 1).await;
        let (head, tail) = (r#"{"jsonrpc":"2.0","result":""#, r#"","id":"waits"}"#);
        let large = json!({"head": head, "filling": 66, "tail": tail});
        text_of(&play.call("write", &large).await);
    };
    let (answer, ()) = tokio::join!(waiting, calling);
    assert_too_large(&answer.messages()[0]);
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn a_line_without_an_end_is_told_to_who_waits_and_costs_no_memory() {
    let log = Log::default();
    let _kept = log.keep();
    let play = Play::open().await;
    let other = other(&play).await;
    let before = resident();
    let endless = json!({"filling": 1024, "tail": ""});
    let calling = play.call("write", &endless);
    let (answer, ()) = tokio::join!(calling, async {
        for _ in 0..5 {
            echoes(&other).await;
        }
    });
    assert_too_large(&answer.messages()[0]);
    assert_eq!(play.tally.count("write"), 1, "it is not repeated");
    assert!(
        resident() < before + 300,
        "{before} MiB before, {} after",
        resident()
    );
    echoes(&other).await;
    // What it says while it still writes that line is in it.
    until("it has written it", || {
        !log.lines_with("a second answer").is_empty()
    })
    .await;
    echoes(&play.client).await;
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn a_process_that_does_not_read_holds_up_its_own_session_only() {
    let play = Play::open_with(|config| {
        only(config).recovery.budget = Duration::from_secs(2);
    })
    .await;
    let other = other(&play).await;
    let pid = play.pid().await;
    signal(pid, "-STOP");
    let text = "x".repeat(1 << 20);
    let arguments = json!({"text": text});
    let long = play.client.call("long", "echo", &arguments);
    let meanwhile = async {
        // Once the pipe is full nothing is written, and nobody waits for ever. What came before the long one is
        // in the pipe, and not waited for.
        let mut attempt = 0;
        let (key, refused) = loop {
            attempt += 1;
            let key = format!("k{attempt}");
            let arguments = json!({"key": key});
            let calling = play.client.call(attempt, "bump", &arguments);
            match tokio::time::timeout(Duration::from_secs(8), calling).await {
                Ok(answer) => break (key, answer),
                Err(_) => assert!(attempt < 3, "nobody says that the process does not read"),
            }
        };
        echoes(&other).await;
        signal(pid, "-CONT");
        (key, refused)
    };
    let (long, (key, refused)) = tokio::join!(long, meanwhile);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert_eq!(refused.json()["error"]["data"]["reason"], "not_recovered");
    assert_eq!(text_of(&long).len(), 1 << 20);
    echoes(&play.client).await;
    assert_eq!(
        play.tally.count(&format!("bump {key}")),
        0,
        "it did not run"
    );
    assert_eq!(play.tally.starts(), 2, "one for each session");
}

#[tokio::test]
async fn a_flood_that_nobody_asked_for_costs_no_memory() {
    let log = Log::default();
    let _kept = log.keep();
    let play = Play::open().await;
    let other = other(&play).await;
    let before = resident();
    let filling = "x".repeat(1 << 20);
    let lines = [
        format!(r#"{{"jsonrpc":"2.0","id":"never asked","result":"{filling}"}}"#),
        format!(r#"{{"jsonrpc":"2.0","method":"notifications/message","params":"{filling}"}}"#),
    ];
    // It does not read while it is flooded.
    let mut listener = play.client.listen().await;
    for line in lines {
        let flood = json!({"times": 150, "lines": [line]});
        let calling = play.call("write", &flood);
        let (answer, ()) = tokio::join!(calling, echoes(&other));
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            resident() < before + 100,
            "{before} MiB before, {} after",
            resident()
        );
    }
    listener.next_message().await;
    assert!(log.lines_with(ODD).len() <= 2, "one for each kind");
    assert_eq!(play.tally.starts(), 2);
}
