//! `kill -9`: under load, a session that a client was told of goes on with the next process; in the
//! middle of a recovery, another gateway takes over.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use bowline_testbed::client::Client;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::Scripted;
use serde_json::json;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::running::{Running, bowline, word_ending_in};

/// How many clients open and call at once.
const AT_ONCE: usize = 32;
/// How many times it is killed.
const ROUNDS: usize = 3;
/// How many calls a client makes in a session before it opens another one.
const CALLS: usize = 3;

/// A session whose client knows its id, and how many of its calls were answered.
struct Told {
    client: Client,
    name: String,
    answered: usize,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_was_told_outlives_kill_9() {
    let tally = Tally::default();
    let server = Counting::start("a", &tally).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bowline.toml");
    let url = server.url();
    let state = folder.path().join("state");
    let state = state.display();
    let text =
        format!("admin = \"off\"\n[store]\npath = '{state}'\n[servers.s]\nurl = \"{url}\"\n");
    std::fs::write(&config, text).unwrap();

    let (mut gateway, url) = start(&config, "127.0.0.1:0");
    let listen = url.split('/').nth(2).unwrap().to_owned();
    let mut told = Vec::new();
    for round in 0..ROUNDS {
        let (happened, mut happenings) = mpsc::unbounded_channel();
        let mut clients = JoinSet::new();
        for number in 0..AT_ONCE {
            let name = format!("{round}-{number}");
            clients.spawn(use_it(url.clone(), name, happened.clone()));
        }
        drop(happened);
        // In the middle of what 32 clients do, somewhere.
        let after = 100 + RandomState::new().hash_one(round) % 400;
        for _ in 0..after {
            happenings.recv().await.unwrap();
        }
        gateway.signal("KILL");
        assert_eq!(gateway.exit_code(), None, "it was killed");
        let before = told.len();
        for one in clients.join_all().await {
            told.extend(one);
        }
        assert!(told.len() >= before + AT_ONCE, "round {round}: {after}");

        let (next, same) = start(&config, &listen);
        assert_eq!(same, url);
        gateway = next;
        for one in &mut told {
            goes_on(one, &tally, round).await;
        }
    }
    gateway.signal("TERM");
    assert_eq!(gateway.exit_code(), Some(0));

    // A session that was opened again would be there twice, because recovery uses the client's name.
    let mut opened: HashMap<String, usize> = HashMap::new();
    for session in server.sessions() {
        let name = session.parameters["clientInfo"]["name"].as_str().unwrap();
        *opened.entry(name.to_owned()).or_default() += 1;
    }
    for one in &told {
        assert_eq!(opened[&one.name], 1, "{}", one.name);
    }
    assert_eq!(server.strays(), 0);
}

/// The turn of the dead one is over after three seconds.
#[tokio::test]
async fn a_gateway_killed_while_it_opens_a_session_again_is_stood_in_for() {
    let redis = Redis::start().await.unwrap();
    let mut server = Scripted::start().await;
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("bowline.toml");
    let (store, url) = (redis.url(), server.url());
    let text = format!(
        "admin = \"off\"\n[store]\nkind = \"redis\"\nurl = \"{store}\"\n[servers.s]\nurl = \"{url}\"\nrecovery_budget = \"9s\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let key = bowline::SealKeys::generate().unwrap();
    let start = || {
        start_by(
            bowline().env("BOWLINE_SEAL_KEYS", &key),
            &config,
            "127.0.0.1:0",
        )
    };
    let ((mut doomed, url), (mut other, elsewhere)) = (start(), start());

    let mut client = Client::new(&url).unwrap();
    let (opened, ()) = tokio::join!(client.open(), async {
        server.next().await.initialized(Some("u1"));
        server.next().await.reply(202, &[], "");
    });
    assert_eq!(opened.unwrap().status, 200);
    let mut moved = client.moved_to(&elsewhere).unwrap();
    let forgot = |asked: bowline_testbed::scripted::Asked| {
        asked.reply(404, &[("content-type", "text/plain")], "Session not found");
    };

    // Killed while it waits for the server's answer to its `initialize`.
    let arguments = json!({});
    let (orphaned, held) = tokio::join!(client.call(1, "t", &arguments), async {
        forgot(server.next().await);
        let held = server.next().await;
        assert_eq!(held.rpc_method(), "initialize");
        doomed.signal("KILL");
        held
    });
    assert!(orphaned.is_err(), "{orphaned:?}");
    assert_eq!(doomed.exit_code(), None, "it was killed");
    let killed = Instant::now();
    let (answer, ()) = tokio::join!(moved.call(2, "t", &arguments), async {
        forgot(server.next().await);
        server.next().await.initialized(Some("u2"));
        server.next().await.reply(202, &[], "");
        let asked = server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "u2");
        assert_eq!(asked.json()["id"], 2);
        asked.result(&json!({}));
    });
    assert_eq!(answer.unwrap().status, 200);
    assert!(
        killed.elapsed() < Duration::from_secs(6),
        "{:?}",
        killed.elapsed()
    );
    drop(held);
    server.finish();
    other.signal("TERM");
    assert_eq!(other.exit_code(), Some(0));
}

fn start(config: &Path, listen: &str) -> (Running, String) {
    start_by(&mut bowline(), config, listen)
}

fn start_by(command: &mut Command, config: &Path, listen: &str) -> (Running, String) {
    let options = ["--config", config.to_str().unwrap()];
    let gateway = Running::start_in(command, listen, &options);
    let url = word_ending_in(&gateway.stdout.read_until("/mcp/s"), "/mcp/s");
    (gateway, url)
}

/// Opens session after session and calls in each, until the gateway is gone. Every session whose id
/// it was told.
async fn use_it(url: String, name: String, happened: UnboundedSender<()>) -> Vec<Told> {
    let mut told = Vec::new();
    for number in 0.. {
        let name = format!("{name}-{number}");
        let mut client = Client::new(&url).unwrap().named(name.clone());
        let opened = client.open().await;
        if client.session().is_none() {
            break;
        }
        let mut one = Told {
            client,
            name,
            answered: 0,
        };
        let is_there = opened.is_ok() && calls(&mut one, &happened).await;
        told.push(one);
        if !is_there {
            break;
        }
    }
    told
}

/// Whether all calls were answered.
async fn calls(one: &mut Told, happened: &UnboundedSender<()>) -> bool {
    for id in 0..CALLS {
        happened.send(()).ok();
        let arguments = json!({"key": one.name});
        let Ok(answer) = one.client.call(id, "bump", &arguments).await else {
            return false;
        };
        // A head without its answer is a gateway that was killed in between.
        if answer.to(&json!(id)).is_none() {
            return false;
        }
        assert_eq!(answer.status, 200, "{:?}", answer.messages);
        one.answered += 1;
    }
    true
}

/// Calls once more in the session, with a new connection.
async fn goes_on(one: &mut Told, tally: &Tally, round: usize) {
    one.client = one.client.twin();
    let ran = tally.executions(&one.name);
    assert!(ran >= one.answered, "what was answered ran");
    let id = json!(format!("after {round}"));
    let arguments = json!({"key": one.name});
    let answer = one.client.call(id.clone(), "bump", &arguments).await;
    let answer = answer.unwrap();
    assert_eq!(answer.status, 200, "{}: {:?}", one.name, answer.messages);
    let result = answer.to(&id).unwrap();
    assert!(result["error"].is_null(), "{}: {result}", one.name);
    assert_eq!(tally.executions(&one.name), ran + 1, "{}", one.name);
    one.answered += 1;
}
