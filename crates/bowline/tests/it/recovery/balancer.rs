//! Recovery behind a real sticky balancer: back to the replica that lives, on to another one when it
//! does not, and never held by a cookie that leads nowhere.

use std::net::SocketAddr;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::{Canned, Fault, Faulty, When};
use bowline_testbed::haproxy::{Affinity, Haproxy};
use bowline_testbed::scripted::PATIENCE;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::messages::list;

struct Behind {
    tally: Tally,
    replicas: Vec<Counting>,
    proxy: Faulty,
    _balancer: Haproxy,
    gateway: Gateway,
    client: Client,
}

impl Behind {
    async fn start(affinity: Affinity) -> Self {
        let tally = Tally::default();
        let mut replicas = Vec::new();
        for name in ["a", "b", "c"] {
            replicas.push(Counting::start(name, &tally).await.unwrap());
        }
        let addresses: Vec<SocketAddr> = replicas.iter().map(Counting::address).collect();
        let balancer = Haproxy::sticky_with(&addresses, affinity).await.unwrap();
        let proxy = Faulty::start(balancer.address()).await.unwrap();
        let gateway = Gateway::start(config(&[("s", &proxy.url())]));
        let gateway = gateway.await.unwrap();
        let mut client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
        assert_eq!(client.send(&list(1)).await.status, 200);
        Self {
            tally,
            replicas,
            proxy,
            _balancer: balancer,
            gateway,
            client,
        }
    }

    /// The replica that has the session.
    fn home(&self) -> &Counting {
        let mut homes = self
            .replicas
            .iter()
            .filter(|one| !one.sessions().is_empty());
        let home = homes.next().expect("a session");
        assert!(homes.next().is_none(), "one session, one replica");
        home
    }

    fn initializes(&self) -> u64 {
        self.replicas.iter().map(Counting::initializes).sum()
    }

    fn strays(&self) -> u64 {
        self.replicas.iter().map(Counting::strays).sum()
    }

    /// Calls often enough that the balancer, left to itself, would use every replica.
    async fn calls_stay_at(&mut self, name: &str) {
        let strays = self.strays();
        for number in 0..6 {
            let key = format!("{name} {number} {}", self.tally.all().len());
            let answer = self.client.call(number, "bump", &json!({"key": key})).await;
            assert_eq!(answer.status, 200);
            let ran = self.tally.all()[&key].clone();
            assert_eq!((ran.len(), ran[0].replica.as_str()), (1, name));
        }
        assert_eq!(self.strays(), strays, "every request had the right cookie");
    }

    /// The same, where the first call meets the loss.
    async fn calls_stay_at_after_a_loss(&mut self, name: &str) {
        let key = format!("loss {}", self.tally.all().len());
        let answer = self.client.call("loss", "bump", &json!({"key": key})).await;
        assert_eq!(answer.status, 200);
        assert_eq!(self.tally.executions(&key), 1);
        self.calls_stay_at(name).await;
    }
}

#[tokio::test]
async fn a_replica_that_forgot_but_lives_is_found_again_by_its_cookie() {
    let mut behind = Behind::start(Affinity::Insists).await;
    let home = behind.home().name().to_owned();
    for losses in 1..=4 {
        behind.home().forget_sessions();
        behind.calls_stay_at_after_a_loss(&home).await;
        assert_eq!(behind.home().initializes(), 1 + losses);
        assert_eq!(behind.initializes(), 1 + losses, "no other was asked");
    }
}

#[tokio::test]
async fn a_balancer_that_moves_the_session_off_a_dead_replica_is_obeyed() {
    let mut behind = Behind::start(Affinity::Moves).await;
    let old = behind.home().name().to_owned();
    behind.home().die().await;
    let answer = behind.client.call(1, "read", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200);
    let new = behind.home().name().to_owned();
    assert_ne!(new, old);
    behind.calls_stay_at(&new).await;
    assert_eq!(behind.initializes(), 2);
    // Nor does it go back when the old one does: its cookie is gone.
    let dead = behind.replicas.iter().find(|one| one.name() == old);
    let dead = dead.unwrap();
    dead.come_back().unwrap();
    let others = async {
        while dead.sessions().is_empty() {
            let mut other = Client::new(&behind.gateway);
            assert_eq!(other.begin().await.status, 200);
        }
    };
    let seen = tokio::time::timeout(PATIENCE, others).await;
    assert!(seen.is_ok(), "the balancer never used it again");
    let opened = behind.initializes();
    behind.calls_stay_at(&new).await;
    assert_eq!(behind.initializes(), opened);
}

#[tokio::test]
async fn a_cookie_that_leads_nowhere_is_given_up() {
    let mut behind = Behind::start(Affinity::Insists).await;
    let old = behind.home().name().to_owned();
    behind.home().die().await;
    let answer = behind.client.call(1, "read", &json!({"key": "k"})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let new = behind.home().name().to_owned();
    assert_ne!(new, old);
    behind.calls_stay_at(&new).await;
    assert_eq!(behind.initializes(), 2);
}

/// What the first failures say is not yet that the replica is gone.
#[tokio::test]
async fn a_few_failures_are_no_reason_to_leave() {
    for forgotten in [false, true] {
        let mut behind = Behind::start(Affinity::Insists).await;
        let home = behind.home().name().to_owned();
        let busy = || Fault::Answer(Canned::plain(503, "busy"));
        behind.proxy.next(1, When::tool("read"), busy());
        let pings = behind.proxy.next(2, When::rpc("ping"), busy());
        if forgotten {
            behind.home().forget_sessions();
        }
        let answer = behind.client.call(1, "read", &json!({"key": "k"})).await;
        assert_eq!((answer.status.as_u16(), pings.met()), (200, 2));
        behind.calls_stay_at(&home).await;
        let initializes = if forgotten { 2 } else { 1 };
        assert_eq!(behind.home().initializes(), initializes);
        assert_eq!(behind.initializes(), initializes);
    }
}

#[tokio::test]
async fn a_balancer_that_is_not_sticky_is_noticed_soon_and_named() {
    for path in ["mcp", "sse"] {
        noticed_at(path).await;
    }
}

async fn noticed_at(path: &str) {
    let tally = Tally::default();
    let mut replicas = Vec::new();
    for name in ["a", "b"] {
        replicas.push(Counting::start(name, &tally).await.unwrap());
    }
    let addresses: Vec<SocketAddr> = replicas.iter().map(Counting::address).collect();
    let balancer = Haproxy::in_turn(&addresses).await.unwrap();
    let url = format!("http://{}/{path}", balancer.address());
    let gateway = Gateway::start(config(&[("s", &url)])).await.unwrap();
    let mut client = Client::new(&gateway);
    // Over HTTP+SSE this needs two requests to the same replica.
    let opened = client.begin().await;
    assert!(path == "sse" || opened.status == 200, "{opened:?}");
    let (mut said, mut initializes) = (opened.text, 0);
    // One request in two reaches the replica that has the session.
    for number in 0..4 {
        if said.contains("not sticky") {
            break;
        }
        let answer = client.call(number, "bump", &json!({"key": number})).await;
        said += &answer.text;
        initializes = replicas.iter().map(Counting::initializes).sum();
    }
    assert!(said.contains("not sticky"), "{said}");
    assert!(said.contains("not_sticky"), "{said}");
    assert!(initializes <= 16, "{initializes} sessions were opened");
}
