//! Servers end idle sessions. Those that a client seems to need are pinged before that, and no others.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Server};
use bowline_testbed::answering::Gate;
use bowline_testbed::everything::Replica;
use bowline_testbed::redis::Fitness;
use bowline_testbed::scripted::{Asked, Scripted};
use serde_json::json;
use tokio::time::Instant;

use crate::kit::across::Across;
use crate::kit::client::{Answer, Client};
use crate::kit::fake::{Fake, config_of, united_with};
use crate::kit::gateway::{config, only};
use crate::kit::log::Log;
use crate::kit::messages::{call, list};
use crate::kit::opened::{forgot, opened_ready};
use crate::kit::replicas::{Replicas, served};
use crate::kit::wait::{until, until_so};

const KEEP_ALIVE: Duration = Duration::from_millis(400);

/// How long the server of these tests keeps an idle session.
const LIMIT: Duration = Duration::from_secs(2);

fn often(config: &mut Config) {
    for server in config.servers.values_mut() {
        server.keep_alive = Some(KEEP_ALIVE);
    }
}

/// A call that the server answers. A ping may come before it.
async fn called(server: &mut Scripted, client: &Client, upstream: &str) -> Answer {
    let message = call("call");
    let sent = client.send(&message);
    tokio::pin!(sent);
    loop {
        tokio::select! {
            answer = &mut sent => return answer,
            asked = server.next() => {
                assert_eq!(asked.header("mcp-session-id"), upstream);
                asked.result(&json!({}));
            }
        }
    }
}

/// The next request, which is a ping of this upstream session.
async fn pinged(server: &mut Scripted, upstream: &str) -> Asked {
    let asked = server.next().await;
    assert_eq!(asked.rpc_method(), "ping");
    assert_eq!(asked.header("mcp-session-id"), upstream);
    asked
}

/// A session that has been used twice.
async fn used(change: impl FnOnce(&mut Config)) -> (Gateway, Scripted, Client) {
    let (gateway, mut server, client) = opened_ready(|config| {
        often(config);
        change(config);
    })
    .await;
    for _ in 0..2 {
        assert_eq!(called(&mut server, &client, "u1").await.status, 200);
    }
    (gateway, server, client)
}

/// A real server that ends idle sessions, and a client that has counted to 2 there.
async fn before_rmcp(keep_alive: Option<Duration>) -> (Replicas, Gateway, Client) {
    let replica = Replica::new("r").with_idle_limit(LIMIT);
    let served = served(vec![replica]).await;
    let mut config = config(&[("s", &served.urls[0])]);
    only(&mut config).keep_alive = keep_alive;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.begin().await.status, 200);
    for expected in ["1", "2"] {
        assert_eq!(counted(&client).await, expected);
    }
    (served, gateway, client)
}

async fn counted(client: &Client) -> String {
    let answer = client.call(1, "count", &json!({})).await;
    let message = answer.messages().pop().unwrap();
    message["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

// --- a real server

#[tokio::test]
async fn a_session_outlasts_the_limit_of_its_server() {
    let (served, _gateway, client) = before_rmcp(Some(KEEP_ALIVE)).await;
    let observed = served.replicas[0].observed();
    let idle_since = Instant::now();
    while idle_since.elapsed() < 5 * LIMIT {
        let seen = observed.pings();
        until("a ping", || observed.pings() > seen).await;
    }
    assert_eq!(counted(&client).await, "3", "the server has kept its state");
    assert_eq!((observed.initializes(), observed.not_found()), (1, 0));
}

#[tokio::test]
async fn without_it_the_server_ends_the_session() {
    let (served, _gateway, client) = before_rmcp(None).await;
    let replica = &served.replicas[0];
    until_so("the end of the session", async || {
        replica.live_sessions().await == 0
    })
    .await;
    assert_eq!(counted(&client).await, "1", "another session, and empty");
    assert_eq!(
        (replica.observed().initializes(), replica.observed().pings()),
        (2, 0)
    );
}

// --- what a ping tells

#[tokio::test]
async fn what_a_ping_finds_lost_is_recovered_once_when_it_is_used() {
    let log = Log::default();
    let _kept = log.keep();
    let (_gateway, mut server, client) = used(|_| {}).await;
    forgot(pinged(&mut server, "u1").await);
    until("the loss", || log.contains("idle session lost")).await;
    assert!(!log.contains("session recovered"), "nothing has used it");
    let message = call("after");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        server.next().await.initialized(Some("u2"));
        server.next().await.reply(202, &[], "");
        let asked = server.next().await;
        assert_eq!(asked.rpc_method(), "tools/call");
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(log.lines_with("session recovered").len(), 1);
    pinged(&mut server, "u2").await.result(&json!({}));
}

#[tokio::test]
async fn a_ping_without_an_answer_proves_nothing() {
    let (_gateway, mut server, client) =
        used(|config| only(config).recovery.budget = Duration::from_secs(1)).await;
    pinged(&mut server, "u1").await.given_up().await;
    assert_eq!(called(&mut server, &client, "u1").await.status, 200);
}

#[tokio::test]
async fn a_server_that_knows_no_pings_keeps_its_session() {
    let (_gateway, mut server, client) = used(|_| {}).await;
    for status in [400, 503] {
        pinged(&mut server, "u1").await.reply(status, &[], "what?");
    }
    assert_eq!(called(&mut server, &client, "u1").await.status, 200);
}

// --- who is pinged

#[tokio::test]
async fn a_session_of_one_call_is_not_pinged() {
    let (gateway, mut server, once) = opened_ready(often).await;
    assert_eq!(called(&mut server, &once, "u1").await.status, 200);
    for number in 0..2 {
        let list = list(number);
        let listed = once.send_to(&mut server, &list, |asked| asked.result(&json!({})));
        assert_eq!(listed.await.status, 200);
    }
    let twice = Client::open(&gateway, &mut server, "u2").await;
    for _ in 0..2 {
        assert_eq!(called(&mut server, &twice, "u2").await.status, 200);
    }
    for _ in 0..3 {
        pinged(&mut server, "u2").await.result(&json!({}));
    }
}

#[tokio::test]
async fn a_session_whose_client_listens_is_pinged() {
    let (_gateway, mut server, client) = opened_ready(often).await;
    let (_events, _pen) = client.open_stream(&mut server, client.get()).await;
    pinged(&mut server, "u1").await.result(&json!({}));
}

#[tokio::test]
async fn a_ping_is_no_use() {
    let idle = Duration::from_secs(2);
    let (_gateway, mut server, _client) = used(|config| config.limits.session_idle = idle).await;
    let mut pings = 0;
    loop {
        let asked = server.next().await;
        if asked.method == "DELETE" {
            break;
        }
        assert_eq!(asked.rpc_method(), "ping");
        asked.result(&json!({}));
        pings += 1;
    }
    assert!(pings > 0);
}

#[tokio::test]
async fn a_member_of_a_union_is_pinged_like_any_session() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    often(&mut config);
    let (_gateway, client) = united_with(config).await;
    // Both have a member for this client.
    assert_eq!(client.send(&list(0)).await.status, 200);
    for number in 1..=2 {
        assert_eq!(client.call(number, "a__t", &json!({})).await.status, 200);
    }
    a.until("ping", 3).await;
    assert_eq!((b.count("initialize"), b.count("ping")), (1, 0));
}

#[tokio::test]
async fn a_server_that_hangs_delays_the_pings_of_no_other() {
    let (a, mut hanging) = (Fake::start("a").await, Scripted::start().await);
    let mut config = config(&[("s", hanging.url()), ("a", &a.url())]);
    often(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let stuck = Client::open(&gateway, &mut hanging, "u1").await;
    let mut other = Client::at(format!("http://{}/mcp/a", gateway.listen()));
    assert_eq!(other.begin().await.status, 200);
    for number in 0..2 {
        assert_eq!(called(&mut hanging, &stuck, "u1").await.status, 200);
        assert_eq!(other.call(number, "t", &json!({})).await.status, 200);
    }
    let _unanswered = pinged(&mut hanging, "u1").await;
    a.until("ping", 3).await;
}

#[tokio::test]
async fn an_endpoint_that_answers_no_pings_delays_those_of_no_other() {
    let (hanging, other) = (Fake::start("hanging").await, Fake::start("other").await);
    let mut config = config_of(&[]);
    let urls = [hanging.url(), other.url()].join(",");
    let server = Server::from_urls(&urls).unwrap();
    config.servers.insert("s".parse().unwrap(), server);
    often(&mut config);
    // A ping is given up after a sixth of it.
    only(&mut config).recovery.budget = Duration::from_secs(120);
    let gateway = Gateway::start(config).await.unwrap();
    let gate = Gate::default();
    gate.close();
    let closed = gate.clone();
    hanging.on("ping", move |seen| seen.result(&json!({})).behind(&closed));
    // More than are pinged at the same time.
    for number in 0..40 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
        for call in 0..2 {
            let answer = client.call(2 * number + call, "t", &json!({})).await;
            assert_eq!(answer.status, 200);
        }
    }
    assert!(hanging.live().len() > 8 && other.live().len() > 8);
    hanging.until("ping", 8).await;
    other.until("ping", other.count("ping") + 40).await;
    assert_eq!(hanging.count("ping"), 8, "none was answered or given up");
    gate.open();
    hanging.until("ping", 9).await;
}

#[tokio::test]
async fn of_several_gateways_one_pings() {
    const KEEP_ALIVE: Duration = Duration::from_secs(1);
    const PINGS: u32 = 5;
    let mut across =
        Across::start_with(2, |config| only(config).keep_alive = Some(KEEP_ALIVE)).await;
    let client = across.open().await;
    for gateway in [0, 1, 0, 1] {
        across.works_at(&client, gateway, "u1").await;
    }
    pinged(&mut across.server, "u1").await.result(&json!({}));
    let began = Instant::now();
    for _ in 0..PINGS {
        pinged(&mut across.server, "u1").await.result(&json!({}));
    }
    let took = began.elapsed();
    assert!(
        took > KEEP_ALIVE * PINGS * 6 / 10,
        "{PINGS} pings within {took:?}"
    );
    // If the one that pings goes, the other does.
    across.gateways.remove(0).stop().await;
    pinged(&mut across.server, "u1").await.result(&json!({}));
}

#[tokio::test]
async fn a_redis_that_takes_no_claim_keeps_nobody_from_pinging() {
    let mut across = Across::start_with(1, |config| {
        only(config).keep_alive = Some(Duration::from_secs(1));
    })
    .await;
    let client = across.open().await;
    for _ in 0..2 {
        across.works_at(&client, 0, "u1").await;
    }
    across.redis.become_fit(Fitness::Full).await.unwrap();
    for _ in 0..2 {
        pinged(&mut across.server, "u1").await.result(&json!({}));
    }
}
