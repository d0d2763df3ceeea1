//! Sessions that outlive their gateway: in a file, and in a Redis that several gateways share.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Store};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::{Fault, Faulty, When};
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::gateway::config;
use crate::kit::stores::{in_file, in_redis};
use crate::kit::wait::until;

/// Two replicas behind any number of gateways.
struct Servers {
    tally: Tally,
    replicas: Vec<Counting>,
}

impl Servers {
    async fn start() -> Self {
        let tally = Tally::default();
        let mut replicas = Vec::new();
        for name in ["a", "b"] {
            replicas.push(Counting::start(name, &tally).await.unwrap());
        }
        Self { tally, replicas }
    }

    fn config(&self, store: Store) -> Config {
        let mut config = config(&[("s", &self.replicas[0].url())]);
        let server = config.servers.values_mut().next().unwrap();
        let urls = self.replicas.iter().map(|one| one.url().parse().unwrap());
        server.target = bowline::config::Target::Endpoints(urls.collect());
        Config { store, ..config }
    }

    fn initializes(&self) -> u64 {
        self.replicas.iter().map(Counting::initializes).sum()
    }

    fn strays(&self) -> u64 {
        self.replicas.iter().map(Counting::strays).sum()
    }

    fn sessions(&self) -> usize {
        self.replicas.iter().map(|one| one.sessions().len()).sum()
    }
}

/// The same client at another gateway.
fn at(client: &Client, gateway: &Gateway) -> Client {
    client.moved_to(gateway)
}

async fn bump(client: &mut Client, key: &str) -> Value {
    let answer = client.call(key, "bump", &json!({"key": key})).await;
    assert_eq!(answer.status, 200, "{key}: {answer:?}");
    answer.to(&json!(key)).unwrap()["result"].clone()
}

#[tokio::test]
async fn sessions_in_a_file_go_on_after_a_restart() {
    let servers = Servers::start().await;
    let directory = tempfile::tempdir().unwrap();
    let gateway = Gateway::start(servers.config(in_file(directory.path())))
        .await
        .unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.begin().await.status, 200);
    bump(&mut client, "before").await;
    gateway.stop().await;

    let gateway = Gateway::start(servers.config(in_file(directory.path())))
        .await
        .unwrap();
    let mut client = at(&client, &gateway);
    bump(&mut client, "after").await;
    assert_eq!((servers.initializes(), servers.strays()), (1, 0));
    assert_eq!(client.end().await.status, 204);
    until("the upstream session has ended", || servers.sessions() == 0).await;
    assert_eq!(client.end().await.status, 404);
}

#[tokio::test]
async fn any_gateway_serves_any_session() {
    let servers = Servers::start().await;
    let redis = Redis::start().await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..3 {
        let config = servers.config(in_redis(&redis));
        gateways.push(Gateway::start(config).await.unwrap());
    }
    let mut client = Client::new(&gateways[0]);
    assert_eq!(client.begin().await.status, 200);
    for round in 0..9 {
        let mut elsewhere = at(&client, &gateways[round % 3]);
        bump(&mut elsewhere, &format!("k{round}")).await;
    }
    assert_eq!((servers.initializes(), servers.strays()), (1, 0));

    // Ended at one, it is over at all of them, at once.
    let ending = at(&client, &gateways[1]);
    assert_eq!(ending.end().await.status, 204);
    for gateway in &gateways {
        until_unknown(&mut at(&client, gateway)).await;
    }
}

async fn until_unknown(client: &mut Client) {
    let asked = async {
        loop {
            let answer = client.call("gone", "read", &json!({"key": "gone"})).await;
            match u16::from(answer.status) {
                404 => return,
                200 => tokio::time::sleep(Duration::from_millis(10)).await,
                other => panic!("{other}"),
            }
        }
    };
    // Without the announcement it would take two seconds.
    let known = tokio::time::timeout(Duration::from_millis(1500), asked).await;
    assert!(known.is_ok(), "its end was not heard of");
}

#[tokio::test]
async fn a_loss_that_several_gateways_meet_is_recovered_once() {
    let servers = Servers::start().await;
    let redis = Redis::start().await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..3 {
        let config = servers.config(in_redis(&redis));
        gateways.push(Gateway::start(config).await.unwrap());
    }
    let mut client = Client::new(&gateways[0]);
    assert_eq!(client.begin().await.status, 200);
    for (number, gateway) in gateways.iter().enumerate() {
        bump(&mut at(&client, gateway), &format!("before{number}")).await;
    }
    servers.replicas.iter().for_each(Counting::forget_sessions);
    let [mut one, mut two, mut three] = [0, 1, 2].map(|n| at(&client, &gateways[n]));
    tokio::join!(
        bump(&mut one, "one"),
        bump(&mut two, "two"),
        bump(&mut three, "three")
    );
    assert_eq!(servers.initializes(), 2, "one for the client, one recovery");
    for key in ["one", "two", "three"] {
        assert_eq!(servers.tally.executions(key), 1, "{key}");
    }
    assert_eq!(servers.sessions(), 1);
}

#[tokio::test]
async fn a_recovery_that_nobody_waits_for_keeps_no_other_gateway_from_it() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let proxy = Faulty::start(server.address()).await.unwrap();
    let redis = Redis::start().await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let store = in_redis(&redis);
        let config = config(&[("s", &proxy.url())]);
        gateways.push(Gateway::start(Config { store, ..config }).await.unwrap());
    }
    let mut client = Client::new(&gateways[0]);
    assert_eq!(client.begin().await.status, 200);
    let mut elsewhere = at(&client, &gateways[1]);
    bump(&mut elsewhere, "before").await;

    server.forget_sessions();
    let hangs = Fault::Delay(Duration::from_secs(60));
    let mut hanging = proxy.next(1, When::rpc("initialize"), hangs);
    let mut leaving = JoinSet::from_iter([async move { bump(&mut client, "left").await }]);
    hanging.until_met(1).await;
    leaving.abort_all();

    // A lease that is not given back lasts longer.
    let after = tokio::time::timeout(Duration::from_secs(2), bump(&mut elsewhere, "after"));
    after.await.expect("the other gateway waits for nobody");
    assert_eq!(tally.executions("left"), 0);
}
