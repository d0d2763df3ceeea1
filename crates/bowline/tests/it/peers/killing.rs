//! Gateways that are processes, so that they can be killed and stopped.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::redis::Redis;
use serde_json::json;

use super::fleet;
use crate::kit::client::Client;
use crate::kit::messages::list;
use crate::kit::programs::{Tally, signal, text_of};

/// Where a gateway says where it listens, and where its Redis and its servers' tally are.
const SAYS: &str = "PEERS_TEST_SAYS";
const REDIS: &str = "PEERS_TEST_REDIS";
const TALLY: &str = "PEERS_TEST_TALLY";
/// Where it listens to other gateways, if that is not any port.
const PEERS: &str = "PEERS_TEST_PEERS";

/// Longer than a gateway is taken for present after its last sign of life.
const UNTIL_GONE: Duration = Duration::from_secs(40);

#[test]
#[ignore = "a gateway of the other tests"]
#[expect(clippy::disallowed_methods, reason = "a program of its own")]
fn gateway() {
    let variable = |name| PathBuf::from(std::env::var(name).unwrap());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let url = std::env::var(REDIS).unwrap();
        let mut config = fleet::config_at(&url, &variable(TALLY));
        if let (Ok(listen), Some(peers)) = (std::env::var(PEERS), &mut config.peers) {
            peers.listen = listen.parse().unwrap();
        }
        let gateway = Gateway::start(config).await.unwrap();
        let says = variable(SAYS);
        std::fs::write(says.with_extension("new"), gateway.listen().to_string()).unwrap();
        std::fs::rename(says.with_extension("new"), says).unwrap();
        std::future::pending::<()>().await;
    });
}

/// A gateway in a process of its own. Killed when dropped.
struct Running {
    child: Child,
    url: String,
}

impl Running {
    async fn start(redis: &Redis, tally: &Tally, folder: &Path, name: &str) -> Self {
        Self::start_at(redis, tally, folder, name, "127.0.0.1:0").await
    }

    /// The same, where other gateways find it there.
    async fn start_at(
        redis: &Redis,
        tally: &Tally,
        folder: &Path,
        name: &str,
        peers: &str,
    ) -> Self {
        let says = folder.join(name);
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .env(PEERS, peers)
            .args([
                "--exact",
                "peers::killing::gateway",
                "--ignored",
                "--nocapture",
            ])
            .env(SAYS, &says)
            .env(REDIS, redis.url())
            .env(TALLY, tally.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        crate::kit::wait::until("a gateway has started", || says.exists()).await;
        let listen = std::fs::read_to_string(&says).unwrap();
        let url = format!("http://{listen}/mcp/s");
        Self { child, url }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    /// Stops it, and waits until it stands still.
    async fn stop(&self) {
        self.signal("-STOP");
        let pid = self.child.id();
        crate::kit::wait::until("it is stopped", || state(pid) == Some('T')).await;
    }

    fn at(&self, client: &Client) -> Client {
        client.moved_to_url(&self.url)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Three gateways, and a session at the first.
struct Three {
    _redis: Redis,
    tally: Tally,
    _folder: tempfile::TempDir,
    gateways: Vec<Running>,
    client: Client,
}

impl Three {
    async fn start() -> Option<Self> {
        let Ok(redis) = Redis::start().await else {
            bowline_testbed::skip("no Redis");
            return None;
        };
        let (tally, folder) = (Tally::default(), tempfile::tempdir().unwrap());
        let mut gateways = Vec::new();
        for name in ["a", "b", "c"] {
            gateways.push(Running::start(&redis, &tally, folder.path(), name).await);
        }
        let mut client = Client::at(gateways[0].url.clone());
        assert_eq!(client.begin().await.status, 200);
        let three = Self {
            _redis: redis,
            tally,
            _folder: folder,
            gateways,
            client,
        };
        assert_eq!(three.at(1).send(&list("l")).await.status, 200);
        Some(three)
    }

    fn at(&self, gateway: usize) -> Client {
        self.gateways[gateway].at(&self.client)
    }

    /// Calls until the session works at a gateway; the process that serves it.
    async fn recovered(&self, gateway: usize, key: &str) -> u32 {
        let trying = async {
            loop {
                let answer = self
                    .at(gateway)
                    .call("r", "peek", &json!({ "key": key }))
                    .await;
                match answer.failure() {
                    None if answer.status == 200 => return text_of(&answer).parse().unwrap(),
                    // This gateway has not seen the list of tools, so it does not know that this one is safe.
                    Some(-31001) => {}
                    _ => assert_eq!(answer.status, 503, "{answer:?}"),
                }
                // Asked again until the owner is given up, which no message tells.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(UNTIL_GONE, trying).await.unwrap()
    }

    /// The processes of the server that live.
    fn alive(&self) -> Vec<u32> {
        let pids = self.tally.pids().into_iter();
        pids.filter(|pid| is_running(*pid)).collect()
    }
}

/// Whether a process lives, and is no zombie.
fn is_running(pid: u32) -> bool {
    state(pid).is_some_and(|state| state != 'Z')
}

/// The state of a process, as the system names it.
fn state(pid: u32) -> Option<char> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    status.rsplit(") ").next()?.chars().next()
}

#[tokio::test]
async fn an_owner_that_is_killed_is_stood_in_for_and_nothing_runs_twice() {
    let Some(three) = Three::start().await else {
        return;
    };
    let first = three.recovered(1, "first").await;
    let (one, two) = (three.at(1), three.at(2));
    let (hang, wait) = (json!({"key": "unsafe"}), json!({"key": "other"}));
    let killing = async {
        three.tally.until("hang unsafe", 1).await;
        three.tally.until("wait other", 1).await;
        three.gateways[0].signal("-KILL");
    };
    let (hung, waited, ()) = tokio::join!(
        one.call(1, "hang", &hang),
        two.call(2, "wait", &wait),
        killing
    );
    for answer in [hung, waited] {
        assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
    }
    let second = three.recovered(2, "second").await;
    assert_ne!(first, second);
    // The other one finds it where it is now.
    assert_eq!(three.recovered(1, "third").await, second);
    assert_eq!(three.alive(), [second]);
    for (what, times) in [("hang unsafe", 1), ("wait other", 1), ("peek first", 1)] {
        assert_eq!(three.tally.count(what), times, "{what}");
    }
    assert_eq!(three.tally.starts(), 2);
}

#[tokio::test]
async fn an_owner_that_wakes_after_it_was_given_up_does_nothing_more() {
    let Some(three) = Three::start().await else {
        return;
    };
    let first = three.recovered(1, "first").await;
    three.gateways[0].stop().await;
    // It is sent, and lies in a buffer of the owner's while that sleeps.
    let (one, bump) = (three.at(1), json!({"key": "asleep"}));
    let in_flight = async {
        let answer = one.call(1, "bump", &bump).await;
        let code = answer.failure();
        assert!(answer.status == 503 || code == Some(-31001), "{answer:?}");
    };
    let (second, ()) = tokio::join!(three.recovered(2, "second"), in_flight);
    assert_ne!(first, second);
    three.gateways[0].signal("-CONT");
    crate::kit::wait::until("the first process is gone", || !is_running(first)).await;
    assert_eq!(three.alive(), [second]);
    assert_eq!(
        three.tally.count("bump asleep"),
        0,
        "the owner was not certain"
    );
    // It serves the session again, by the new owner.
    for gateway in [0, 1, 2] {
        assert_eq!(three.recovered(gateway, "after").await, second);
    }
    assert_eq!(three.tally.starts(), 2);
}

/// It has another name, at the same address, and the old one still counts as present.
#[tokio::test]
async fn an_owner_that_comes_back_at_its_address_is_another_one() {
    let Ok(redis) = Redis::start().await else {
        bowline_testbed::skip("no Redis");
        return;
    };
    let (tally, folder) = (Tally::default(), tempfile::tempdir().unwrap());
    let listen = super::failures::free_port().to_string();
    let mut owner = Running::start_at(&redis, &tally, folder.path(), "a", &listen).await;
    let other = Running::start(&redis, &tally, folder.path(), "b").await;
    let mut client = Client::at(owner.url.clone());
    assert_eq!(client.begin().await.status, 200);
    let at_other = other.at(&client);
    let before = at_other.call(1, "bump", &json!({"key": "before"})).await;
    assert_eq!(before.status, 200, "{before:?}");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    let _again = Running::start_at(&redis, &tally, folder.path(), "c", &listen).await;
    let after = at_other.call(2, "bump", &json!({"key": "after"})).await;
    assert_ne!(after.failure(), Some(-31001), "it did not run: {after:?}");
    let ran = usize::from(after.status == 200);
    assert_eq!(tally.count("bump after"), ran, "{after:?}");
}
