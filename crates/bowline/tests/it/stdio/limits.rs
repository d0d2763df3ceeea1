//! How many processes there may be, what they inherit, and how they end.

use std::path::Path;
use std::time::Duration;

use bowline::Gateway;
use bowline::config::Target;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::programs::{Play, command, config_of, text_of, until_gone};
use crate::kit::wait::until_so;

#[tokio::test]
async fn there_are_no_more_processes_than_allowed() {
    let play = Play::open_with(|config| config.limits.children = 1).await;
    let mut other = Client::new(&play.gateway);
    let refused = other.initialize().await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"));
    let error = refused.json()["error"].clone();
    assert_eq!(
        (&error["code"], &error["data"]["reason"]),
        (&json!(-31005), &json!("too_many_processes"))
    );
    // A process that died leaves its place to its successor.
    crate::kit::programs::kill(play.pid().await).await;
    assert_eq!(play.call("echo", &json!({"text": "x"})).await.status, 200);
    assert_eq!(play.client.end().await.status, 204);
    let other = parking_lot(other);
    until_so("there is room", async || {
        other.lock().await.begin().await.status == 200
    })
    .await;
}

fn parking_lot(client: Client) -> tokio::sync::Mutex<Client> {
    tokio::sync::Mutex::new(client)
}

#[tokio::test]
async fn processes_end_with_their_gateway() {
    let play = Play::open().await;
    let pid = play.pid().await;
    play.gateway.stop().await;
    assert!(
        !Path::new(&format!("/proc/{pid}")).exists(),
        "a stop waits for it"
    );
    let play = Play::open().await;
    let pid = play.pid().await;
    drop(play);
    until_gone(pid).await;
}

#[tokio::test]
async fn a_process_ends_when_nobody_uses_its_session() {
    let play =
        Play::open_with(|config| config.limits.session_idle = Duration::from_millis(500)).await;
    until_gone(play.pid().await).await;
}

#[tokio::test]
async fn a_process_inherits_what_is_listed_and_nothing_else() {
    let play = Play::open_with(|config| {
        let Target::Command(command) = &mut only(config).target else {
            panic!("not a command");
        };
        let told = r#"env >"$STDIO_TALLY.env"; "#.to_owned();
        command.args[1].insert_str(0, &told);
        command
            .inherited
            .insert("LANG".to_owned(), "C.UTF-8".to_owned());
        command
            .inherited
            .insert("TOKEN".to_owned(), "inherited".to_owned());
        command
            .env
            .insert("TOKEN".to_owned(), "configured".to_owned());
        command.cwd = Some("/".into());
    })
    .await;
    let env = play.tally.path().with_file_name("tally.env");
    let env = std::fs::read_to_string(env).unwrap();
    let mut names: Vec<_> = env
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.retain(|name| !matches!(*name, "_" | "SHLVL" | "BOWLINE_CHILD" | "PWD" | "OLDPWD"));
    names.sort_unstable();
    assert_eq!(names, ["LANG", "STDIO_TALLY", "TOKEN"]);
    assert!(
        env.contains("TOKEN=configured") && env.contains("PWD=/\n"),
        "{env}"
    );
}

#[tokio::test]
async fn another_command_is_another_server() {
    let play = Play::open().await;
    let pid = play.pid().await;
    let mut changed = command(&play.tally.path());
    changed.env.insert("VERSION".to_owned(), "2".to_owned());
    let mut config = config_of(changed);
    only(&mut config).recovery.drain_timeout = Duration::ZERO;
    play.gateway.reload(config).unwrap();
    until_gone(pid).await;
    assert_eq!(
        text_of(&play.call("echo", &json!({"text": "x"})).await),
        "x"
    );
    assert_eq!(play.tally.starts(), 2);
}

#[tokio::test]
async fn many_sessions_come_and_go_and_leave_nothing() {
    let play = Play::start(|_| {}).await;
    for _ in 0..10 {
        let mut clients = Vec::new();
        for _ in 0..3 {
            let mut client = Client::new(&play.gateway);
            assert_eq!(client.begin().await.status, 200);
            clients.push(client);
        }
        for client in clients {
            assert_eq!(client.end().await.status, 204);
        }
    }
    for pid in play.tally.pids() {
        until_gone(pid).await;
    }
    assert_eq!(play.tally.starts(), 30);
    let Play { gateway, .. } = play;
    Gateway::stop(gateway).await;
}

#[tokio::test]
async fn a_result_may_be_large_and_one_that_is_too_large_is_said_to_be_so() {
    let play = Play::open().await;
    let large = json!({"bytes": 30 << 20});
    let answer = play.call("large", &large).await;
    assert_eq!(text_of(&answer).len(), 30 << 20);
    let too_large = json!({"bytes": 65 << 20});
    let answer = play.call("large", &too_large).await;
    assert_eq!(answer.failure(), Some(-32603), "{answer:?}");
    assert!(answer.text.contains("answer_too_large"), "{answer:?}");
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(
        play.tally.starts(),
        1,
        "neither the process ends nor the session"
    );
}
