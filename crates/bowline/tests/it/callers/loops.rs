//! A server whose address leads back to the gateway is found out by the first `initialize`.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{config, with_admin};
use crate::kit::messages::{call, initialize_message};
use crate::kit::opened::forgot;

/// Nobody listens there: for gateways that are told later.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// How often a gateway refused a loop.
const LOOPS: &str = "bowline_refusals_total{reason=\"loop\"} ";

fn before(server: &str, url: &str) -> Config {
    let mut config = config(&[(server, url)]);
    with_admin(&mut config);
    config
}

async fn start(server: &str, url: &str) -> Gateway {
    Gateway::start(before(server, url)).await.unwrap()
}

fn url(gateway: &Gateway, server: &str) -> String {
    format!("http://{}/mcp/{server}", gateway.listen())
}

fn assert_is_loop_of(server: &str, refused: &Answer) {
    assert_eq!((refused.status.as_u16(), refused.code()), (508, -31002));
    let answer = refused.json();
    assert_eq!(answer["id"], initialize_message()["id"]);
    assert_eq!(answer["error"]["data"]["reason"], "loop", "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains(&format!("\"{server}\"")), "{message}");
    assert!(!refused.headers.contains_key("mcp-session-id"));
}

/// What a gateway has counted by this name.
async fn counted(gateway: &Gateway, name: &str) -> String {
    let metrics = format!("http://{}/metrics", gateway.admin().unwrap());
    let metrics = reqwest::get(metrics).await.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    let found = lines.find_map(|line| line.strip_prefix(name));
    found.unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_server_that_is_the_gateway_itself_is_refused_by_its_name() {
    let gateway = start("mirror", NOWHERE).await;
    let itself = url(&gateway, "mirror");
    gateway.reload(before("mirror", &itself)).unwrap();
    assert_is_loop_of("mirror", &Client::at(itself).initialize().await);
    // It came round once.
    assert_eq!(counted(&gateway, LOOPS).await, "1");
}

#[tokio::test]
async fn a_way_that_leads_back_over_another_gateway_is_refused() {
    let a = start("b", NOWHERE).await;
    let b = start("a", &url(&a, "b")).await;
    a.reload(before("b", &url(&b, "a"))).unwrap();
    // Whoever finds itself on the way says which of its servers leads there.
    for (gateway, server) in [(&a, "b"), (&b, "a")] {
        let refused = Client::at(url(gateway, server)).initialize().await;
        assert_is_loop_of(server, &refused);
        assert_eq!(counted(gateway, LOOPS).await, "1");
    }
}

#[tokio::test]
async fn gateways_in_a_row_are_no_loop() {
    let mut server = Scripted::start().await;
    let near = start("s", server.url()).await;
    let far = start("s", &url(&near, "s")).await;
    let mut client = Client::new(&far);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = server.next().await;
        let way: Vec<_> = asked.header("via").split(", ").collect();
        assert!(way.len() == 2 && way[0] != way[1], "{way:?}");
        asked.initialized(Some("u"));
    });
    assert_eq!(opened.status, 200, "{opened:?}");
    let message = call(1);
    let sent = client.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(sent.await.status, 200);
    server.finish();
}

/// A recovery's `initialize` does not say where it came by; the one that it leads to does.
#[tokio::test]
async fn a_recovery_that_leads_back_opens_nothing() {
    let impatient = |url: &str| {
        let mut config = before("s", url);
        let server = config.servers.values_mut().next().unwrap();
        server.recovery.budget = Duration::from_secs(1);
        config
    };
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(impatient(server.url())).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    gateway.reload(impatient(&url(&gateway, "s"))).unwrap();
    let message = call(1);
    let answer = client.send_to(&mut server, &message, forgot).await;
    assert_eq!((answer.status.as_u16(), answer.code()), (503, -31002));
    // It came round, as often as it was tried.
    assert_ne!(counted(&gateway, LOOPS).await, "", "{answer:?}");
    let opened = "bowline_sessions_opened_total{server=\"s\"} ";
    assert_eq!(counted(&gateway, opened).await, "1");
    server.finish();
}
