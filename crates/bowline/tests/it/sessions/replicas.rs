//! Bowline as the balancer: sessions are spread, pinned, and kept away from what is ill.

use std::net::SocketAddr;

use bowline::Gateway;
use bowline::config::{Config, Server};
use bowline_testbed::everything::{Replica, serve};
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::kit::client::{Client, read};
use crate::kit::gateway::{admin, config, with_admin};
use crate::kit::messages::{call, initialize_message};
use crate::kit::replicas::replicas;

/// A configuration with one server at these endpoints, and an admin listener.
fn replicated(urls: &[&str]) -> Config {
    let mut config = config(&[]);
    config.servers.insert(
        "s".parse().unwrap(),
        Server::from_urls(&urls.join(",")).unwrap(),
    );
    with_admin(&mut config);
    config
}

/// What the gateway says of its server `s`.
async fn health(gateway: &Gateway) -> Value {
    let answer = admin(gateway, "/health").await;
    assert_eq!(answer.status, 200);
    answer.json()["servers"]["s"].clone()
}

async fn is_ready(gateway: &Gateway) -> bool {
    admin(gateway, "/ready").await.status == 200
}

/// Waits until the gateway says so of its server.
async fn until(gateway: &Gateway, what: impl Fn(&Value) -> bool) -> Value {
    let waiting = async {
        loop {
            let told = health(gateway).await;
            if what(&told) {
                return told;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("the gateway to notice")
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_are_spread_and_stay_where_they_are() {
    let behind = replicas(3).await;
    let urls: Vec<&str> = behind.urls.iter().map(String::as_str).collect();
    let gateway = Gateway::start(replicated(&urls)).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..60 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.initialize().await.status, 200);
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        clients.push(client);
    }
    for expected in 1..=5 {
        for client in &clients {
            let count = json!({"jsonrpc": "2.0", "id": expected, "method": "tools/call", "params": {"name": "count"}});
            let answer = client.send(&count).await;
            assert!(
                answer.text.contains(&format!(r#""text":"{expected}""#)),
                "{}",
                answer.text
            );
        }
    }
    let opened: Vec<u64> = behind
        .replicas
        .iter()
        .map(|replica| replica.observed().initializes())
        .collect();
    assert_eq!(opened.iter().sum::<u64>(), 60);
    assert!(
        opened.iter().all(|count| (17..=23).contains(count)),
        "{opened:?}"
    );
    assert!(
        behind
            .replicas
            .iter()
            .all(|replica| replica.observed().strays() == 0)
    );
    assert_eq!(health(&gateway).await["sessions"], 60);
    for client in clients {
        assert_eq!(client.delete().send().await.unwrap().status(), 204);
    }
    until(&gateway, |told| told["sessions"] == 0).await;
}

async fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap()
}

#[tokio::test]
async fn a_dead_replica_takes_no_sessions_and_comes_back_by_itself() {
    let mut alive = Scripted::start().await;
    let dead = free_address().await;
    let dead_url = format!("http://{dead}/mcp?key=hidden");
    let gateway = Gateway::start(replicated(&[alive.url(), &dead_url]))
        .await
        .unwrap();
    // Whichever is picked, every session ends up at the one that lives.
    for id in 0..6 {
        Client::open(&gateway, &mut alive, &format!("u{id}")).await;
    }
    let told = until(&gateway, |told| told["endpoints"][1]["status"] == "ejected").await;
    assert_eq!(told["endpoints"][1]["sessions"], 0);
    assert!(
        told["endpoints"][1]["reason"]
            .as_str()
            .unwrap()
            .contains("refused"),
        "{told}"
    );
    assert!(!told.to_string().contains("hidden"), "{told}");
    assert!(is_ready(&gateway).await);

    let _back = TcpListener::bind(dead).await.unwrap();
    until(&gateway, |told| told["endpoints"][1]["status"] == "ok").await;
    alive.finish();
}

#[tokio::test]
async fn with_nobody_there_the_gateway_starts_and_says_so_until_somebody_is() {
    let address = free_address().await;
    let mut config = config(&[("s", &format!("http://{address}/mcp?key=hidden"))]);
    config
        .servers
        .values_mut()
        .next()
        .unwrap()
        .headers
        .insert("authorization", "Bearer hidden".parse().unwrap());
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    for _ in 0..3 {
        let refused = client.initialize().await;
        assert_eq!((refused.status.as_u16(), refused.code()), (503, -31002));
        assert!(refused.headers.contains_key("retry-after"));
        assert!(
            refused.text.contains("server \"s\"") || refused.text.contains(r#"server \"s\""#),
            "{}",
            refused.text
        );
        assert!(refused.text.contains("refused"), "{}", refused.text);
        assert!(!refused.text.contains("hidden"), "{}", refused.text);
    }
    assert!(!is_ready(&gateway).await);
    assert_eq!(health(&gateway).await["status"], "unavailable");

    let behind = Replica::new("late");
    let stop = CancellationToken::new();
    let listener = TcpListener::bind(address).await.unwrap();
    let _serving = JoinSet::from_iter([serve(listener, behind.clone(), stop.clone())]);
    until(&gateway, |told| told["status"] == "ok").await;
    assert_eq!(client.initialize().await.status, 200);
    assert!(is_ready(&gateway).await);
    stop.cancel();
}

/// What only fails takes no new sessions, and those that it had go where they are served.
#[tokio::test]
async fn a_replica_that_only_answers_503_loses_its_sessions_to_the_others() {
    let (mut one, mut two) = (Scripted::start().await, Scripted::start().await);
    let config = replicated(&[one.url(), two.url()]);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    let (opened, at_one) = tokio::join!(client.initialize(), async {
        tokio::select! {
            asked = one.next() => { asked.initialized(Some("u")); true }
            asked = two.next() => { asked.initialized(Some("u")); false }
        }
    });
    assert_eq!(opened.status, 200);
    let (ill, well) = if at_one {
        (&mut one, &mut two)
    } else {
        (&mut two, &mut one)
    };
    let fail = async {
        loop {
            ill.next().await.reply(503, &[], "");
        }
    };
    let moved = async {
        let answer = client.send(&call(1)).await;
        assert_eq!(
            answer.code(),
            -31001,
            "an unsafe call whose outcome is unknown"
        );
        let asked = well.next().await;
        assert_eq!(
            (asked.rpc_method().as_str(), asked.header("mcp-session-id")),
            ("initialize", "")
        );
        asked.initialized(Some("v"));
        let message = call(2);
        let answered = client.send_to(well, &message, |asked| {
            assert_eq!(asked.header("mcp-session-id"), "v");
            asked.result(&json!({}));
        });
        assert_eq!(answered.await.status, 200);
    };
    tokio::select! {
        () = moved => {}
        () = fail => {}
    }
}

/// The endpoint that failed is avoided although it has fewer sessions than the other.
#[tokio::test]
async fn a_recovery_that_fails_at_one_replica_goes_to_the_other() {
    let (mut one, mut two) = (Scripted::start().await, Scripted::start().await);
    let config = replicated(&[one.url(), two.url()]);
    let gateway = Gateway::start(config).await.unwrap();
    let (mut at_one, mut at_two) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let mut client = Client::new(&gateway);
        let (opened, is_one) = tokio::join!(client.initialize(), async {
            tokio::select! {
                asked = one.next() => { asked.initialized(Some("u")); true }
                asked = two.next() => { asked.initialized(Some("u")); false }
            }
        });
        assert_eq!(opened.status, 200);
        if is_one { &mut at_one } else { &mut at_two }.push(client);
    }
    let (client, ill, well) = match at_one.len() < at_two.len() {
        true => (&at_one[0], &mut one, &mut two),
        false => (&at_two[0], &mut two, &mut one),
    };
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let recovered = async {
        ill.next().await.reply(404, &[], "no such session");
        let asked = ill.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.reply(503, &[], "");
        let asked = tokio::select! {
            asked = well.next() => asked,
            _ = ill.next() => panic!("the replica that failed is asked again"),
        };
        assert_eq!(asked.rpc_method(), "initialize");
        asked.initialized(Some("v"));
        let asked = well.next().await;
        assert_eq!(asked.header("mcp-session-id"), "v");
        asked.result(&json!({"tools": []}));
    };
    let (answer, ()) = tokio::join!(client.send(&message), recovered);
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn a_server_that_hangs_hurts_nobody_else() {
    let mut well = Scripted::start().await;
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", hanging.local_addr().unwrap());
    let mut config = config(&[("s", well.url()), ("hanging", &url)]);
    with_admin(&mut config);
    config.limits.streams = 50;
    let gateway = Gateway::start(config).await.unwrap();
    let stuck = Client::at(format!("http://{}/mcp/hanging", gateway.listen()));
    let mut waiting = JoinSet::new();
    for _ in 0..60 {
        waiting.spawn(stuck.post(&initialize_message()).send());
    }
    // It has its own share and what is for whoever comes first.
    for _ in 0..60 - 38 {
        let refused = read(waiting.join_next().await.unwrap().unwrap().unwrap()).await;
        assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
        let reason = &refused.json()["error"]["data"]["reason"];
        assert_eq!(reason, "too_many_streams_of_server");
        assert!(refused.headers.contains_key("retry-after"));
    }
    let client = Client::open(&gateway, &mut well, "u").await;
    for round in 0..2 {
        let sent = (0..12).map(|id| client.post(&call(round * 12 + id)).send());
        let twelve = JoinSet::from_iter(sent);
        let answering = async {
            let mut asked = Vec::new();
            while asked.len() < 12 {
                asked.push(well.next().await);
            }
            asked.into_iter().for_each(|asked| asked.result(&json!({})));
        };
        let (answers, ()) = tokio::join!(twelve.join_all(), answering);
        let served = |answer: &Result<_, _>| matches!(answer, Ok(answer) if reqwest::Response::status(answer) == 200);
        assert!(answers.iter().all(served));
        // That its clients leave changes nothing.
        waiting.abort_all();
    }
    assert_eq!(health(&gateway).await["status"], "ok");
}

#[tokio::test]
async fn health_can_be_asked_for_by_get_and_never_by_initialize() {
    let mut server = Scripted::start().await;
    let mut config = replicated(&[server.url()]);
    let settings = config.servers.values_mut().next().unwrap();
    settings.target = bowline::config::Target::Endpoints(vec![server.url().parse().unwrap()]);
    settings.health.every = std::time::Duration::from_millis(50);
    settings.health.get = Some("/healthz?deep".parse().unwrap());
    let gateway = Gateway::start(config).await.unwrap();
    for _ in 0..3 {
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("GET", "/healthz?deep")
        );
        asked.reply(500, &[], "");
    }
    let answer_well = async {
        loop {
            server.next().await.reply(200, &[], "");
        }
    };
    let noticed = async {
        let told = until(&gateway, |told| told["status"] == "unavailable").await;
        assert!(
            told["endpoints"][0]["reason"]
                .as_str()
                .unwrap()
                .contains("500"),
            "{told}"
        );
        until(&gateway, |told| told["status"] == "ok").await;
    };
    tokio::select! {
        () = noticed => {}
        () = answer_well => {}
    }
}
