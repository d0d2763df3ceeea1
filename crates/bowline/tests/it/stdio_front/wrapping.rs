//! A command behind a client on stdio: it is started again, and nobody notices.

use bowline::config::Command;
use serde_json::{Value, json};

use crate::kit::messages::list;
use crate::kit::programs::{Tally, command, config_of, kill};
use crate::kit::wired::{Wired, call_of, initialize};

async fn stage() -> (Tally, Wired) {
    let tally = Tally::default();
    let mut client = Wired::with(config_of(command(&tally.path()))).await;
    client.begin().await;
    learn_tools(&mut client).await;
    (tally, client)
}

async fn learn_tools(client: &mut Wired) {
    let mut second = list("page 2");
    second["params"] = json!({"cursor": "second"});
    for page in [list("page 1"), second] {
        client.ask(&page).await;
    }
}

/// The process that serves the session now.
async fn pid(client: &mut Wired) -> u32 {
    let peek = call_of("pid", "peek", &json!({"key": "pid"}));
    text(&client.ask(&peek).await).parse().unwrap()
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn a_crash_is_mended_and_an_unsafe_call_in_flight_is_told() {
    let (tally, mut client) = stage().await;
    let level = json!({"jsonrpc": "2.0", "id": "level", "method": "logging/setLevel", "params": {"level": "debug"}});
    client.ask(&level).await;
    let subscribe = json!({"jsonrpc": "2.0", "id": "subscribe", "method": "resources/subscribe", "params": {"uri": "file:///x"}});
    client.ask(&subscribe).await;
    let first = pid(&mut client).await;
    client
        .say(&call_of("unsafe", "hang", &json!({"key": "k"})))
        .await;
    client
        .say(&call_of("safe", "hang_once", &json!({"key": "k"})))
        .await;
    tally.until("hang k", 1).await;
    tally.until("hang_once k", 1).await;
    kill(first).await;
    let told = client.answer_to(&json!("unsafe")).await;
    assert_eq!(told["error"]["code"], -31001, "{told}");
    assert_eq!(text(&client.answer_to(&json!("safe")).await), "answered");
    assert_eq!(tally.count("hang k"), 1);
    for said in [
        "heard notifications/initialized",
        "level \"debug\"",
        "subscribe \"file:///x\"",
    ] {
        assert_eq!(tally.count(said), 2, "{said}");
    }
    assert_ne!(pid(&mut client).await, first);
}

#[tokio::test]
async fn no_process_is_left_when_the_client_leaves() {
    let (_tally, mut client) = stage().await;
    let process = pid(&mut client).await;
    client.close();
    client.ended().await;
    // A zombie that nobody has asked for yet has no command line.
    let command = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    assert_eq!(command, b"");
}

#[tokio::test]
async fn a_command_that_dies_at_once_is_an_error_at_once() {
    let dies = "echo the reason >&2; exit 3";
    let dying = Command::new("/bin/sh", ["-c", dies].map(str::to_owned).into());
    let missing = Command::new("no-such-program", Vec::new());
    for (command, said) in [(dying, "the reason"), (missing, "was not found")] {
        let mut client = Wired::with(config_of(command)).await;
        let refused = client.ask(&initialize("2025-11-25", &json!({}))).await;
        let message = refused["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(said), "{refused}");
    }
}

#[tokio::test]
async fn a_request_before_initialize_is_refused() {
    let tally = Tally::default();
    let mut client = Wired::with(config_of(command(&tally.path()))).await;
    let early = client.ask(&list("early")).await;
    assert_eq!(early["error"]["code"], -32600, "{early}");
    let opened = client.begin().await;
    assert!(opened["result"].is_object(), "{opened}");
    assert_eq!(tally.starts(), 1);
}
