//! Many sessions that begin, or are recovered, at once: a server's processes start a few at a time, and one
//! server's do not wait for another's.

use bowline::config::{Config, Server};
use serde_json::json;
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::gateway::only;
use crate::kit::log::Log;
use crate::kit::programs::{Play, Tally, command, kill, text_of, until_gone};
use crate::kit::wait::until;

const SESSIONS: usize = 24;

/// How many start at once.
fn at_once() -> usize {
    std::thread::available_parallelism().unwrap().get().max(4)
}

/// The server `s` starts when it may, and there is another server `t`.
fn held(config: &mut Config, others: &Tally) {
    let bowline::config::Target::Command(slow) = &mut only(config).target else {
        panic!("not a command");
    };
    let start = bowline_testbed::stdio::START.to_owned();
    slow.env.insert(start, "held".to_owned());
    let server = Server::from_command(command(&others.path()));
    config.servers.insert("t".parse().unwrap(), server);
}

#[tokio::test]
async fn a_herd_starts_a_few_at_a_time_and_holds_up_no_other_server() {
    let others = Tally::default();
    let play = Play::start(|config| held(config, &others)).await;
    let go = play.tally.path().with_extension("go");
    let mut opening = JoinSet::new();
    for _ in 0..SESSIONS {
        let mut client = Client::new(&play.gateway);
        opening.spawn(async move {
            assert_eq!(client.begin().await.status, 200);
            client
        });
    }
    let (clients, ()) = tokio::join!(opening.join_all(), meanwhile(&play, &go, at_once()));
    assert_eq!(play.tally.starts(), SESSIONS);

    // All are lost, and used again at once.
    for pid in play.tally.pids() {
        kill(pid).await;
    }
    std::fs::remove_file(&go).unwrap();
    let mut calling = JoinSet::new();
    for client in clients {
        calling.spawn(async move { client.call(1, "echo", &json!({"text": "x"})).await });
    }
    let starts = SESSIONS + at_once();
    let (answers, ()) = tokio::join!(calling.join_all(), meanwhile(&play, &go, starts));
    assert!(answers.iter().all(|one| text_of(one) == "x"));
    assert_eq!(play.tally.starts(), 2 * SESSIONS);
}

/// So many processes were started, and no more; another server's session opens; then they go on.
async fn meanwhile(play: &Play, go: &std::path::Path, starts: usize) {
    until("a few start", || play.tally.starts() == starts).await;
    let mut other = Client::at(format!("http://{}/mcp/t", play.gateway.listen()));
    assert_eq!(other.begin().await.status, 200);
    let answer = other.call(1, "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(play.tally.starts(), starts);
    std::fs::write(go, "").unwrap();
}

#[tokio::test]
async fn a_process_that_dies_young_is_a_failed_start() {
    let log = Log::default();
    let _kept = log.keep();
    let mut play = Play::start(|config| {
        let bowline::config::Target::Command(command) = &mut only(config).target else {
            panic!("not a command");
        };
        let start = bowline_testbed::stdio::START.to_owned();
        command.env.insert(start, "young".to_owned());
    })
    .await;
    drop(play.client.begin().await);
    until("it has died", || play.tally.starts() > 0).await;
    until_gone(play.tally.pids()[0]).await;
    until("its server rests", || {
        !log.lines_with("exited soon after it had started")
            .is_empty()
    })
    .await;
}
