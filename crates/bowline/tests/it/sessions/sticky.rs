//! Behind a real sticky balancer every request of a session reaches the replica that owns it.

use std::net::SocketAddr;

use bowline::Gateway;
use bowline::config::OnLoss;
use bowline::planted::Planted;
use bowline_testbed::everything::{Replica, serve};
use bowline_testbed::haproxy::{COOKIE, Haproxy};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::list;

struct Replicas {
    replicas: Vec<Replica>,
    balancer: Haproxy,
    _serving: JoinSet<std::io::Result<()>>,
    _stop: DropGuard,
}

impl Replicas {
    async fn start() -> Self {
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let mut addresses: Vec<SocketAddr> = Vec::new();
        let replicas = vec![Replica::new("one"), Replica::new("two")];
        for replica in &replicas {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(listener.local_addr().unwrap());
            serving.spawn(serve(listener, replica.clone(), stop.clone()));
        }
        Self {
            balancer: Haproxy::sticky(&addresses).await.unwrap(),
            replicas,
            _serving: serving,
            _stop: stop.drop_guard(),
        }
    }

    fn strays(&self) -> u64 {
        self.replicas
            .iter()
            .map(|replica| replica.observed().strays())
            .sum()
    }
}

/// One session: initialise, count to `calls`, end. `Err` says what went wrong.
async fn session(mut client: Client, calls: u32) -> Result<(), String> {
    let mut cookies = Vec::new();
    let opened = client.initialize().await;
    cookies.extend(opened.headers.get_all("set-cookie").iter().cloned());
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = client.send(&ready).await;
    cookies.extend(answer.headers.get_all("set-cookie").iter().cloned());
    // Otherwise Bowline lists them, perhaps while the session ends.
    let listed = client.send(&list("tools")).await;
    cookies.extend(listed.headers.get_all("set-cookie").iter().cloned());
    for expected in 1..=calls {
        let count = json!({"jsonrpc": "2.0", "id": expected, "method": "tools/call", "params": {"name": "count"}});
        let answer = client.send(&count).await;
        cookies.extend(answer.headers.get_all("set-cookie").iter().cloned());
        let wanted = format!(r#""text":"{expected}""#);
        if answer.status != 200 || !answer.text.contains(&wanted) {
            return Err(format!(
                "call {expected}: {} {}",
                answer.status, answer.text
            ));
        }
        if answer.text.contains(COOKIE) {
            return Err(format!("a cookie's name in {}", answer.text));
        }
    }
    let deleted = client.delete().send().await.unwrap();
    match (deleted.status().as_u16(), cookies.is_empty()) {
        (204, true) => Ok(()),
        (status, _) => Err(format!("DELETE {status}, cookies {cookies:?}")),
    }
}

/// Runs sessions side by side and returns what went wrong.
async fn run(gateway: &Gateway, sessions: usize, calls: u32) -> Vec<String> {
    let mut running: JoinSet<Result<(), String>> = JoinSet::new();
    let mut wrong = Vec::new();
    for _ in 0..sessions {
        if running.len() == 16 {
            wrong.extend(running.join_next().await.unwrap().unwrap().err());
        }
        running.spawn(session(Client::new(gateway), calls));
    }
    while let Some(ended) = running.join_next().await {
        wrong.extend(ended.unwrap().err());
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_ever_reaches_the_wrong_replica() {
    let behind = Replicas::start().await;
    let gateway = Gateway::start(config(&[("s", behind.balancer.url())]))
        .await
        .unwrap();
    let wrong = run(&gateway, 200, 20).await;
    assert_eq!(wrong, [""; 0]);
    assert_eq!(behind.strays(), 0);
    for replica in &behind.replicas {
        assert_eq!(
            replica.observed().initializes(),
            100,
            "the balancer spreads sessions evenly"
        );
    }
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_jar_the_same_run_fails() {
    let behind = Replicas::start().await;
    let forgetful = Planted {
        forget_cookies: true,
    };
    let mut config = config(&[("s", behind.balancer.url())]);
    // What cookies are for is what is tried here, not what mends their loss.
    config.servers.values_mut().next().unwrap().recovery.on_loss = OnLoss::Tell;
    let gateway = Gateway::start_planted(config, forgetful).await.unwrap();
    let wrong = run(&gateway, 200, 20).await;
    assert!(!wrong.is_empty());
    assert!(behind.strays() > 0);
}
