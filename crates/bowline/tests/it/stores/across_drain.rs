//! An endpoint is drained while several gateways have work on one session there: none of it breaks.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Server, Store};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::Scripted;
use http::HeaderName;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::kit::client::{Client, read};
use crate::kit::gateway::config;
use crate::kit::messages::{call, initialize_message};
use crate::kit::stores::in_redis;

/// Long enough that a test sees what happens before it is over.
const DRAIN: Duration = Duration::from_secs(2);

fn over(store: Store, urls: &[&str]) -> Config {
    let mut config = config(&[]);
    let mut server = Server::from_urls(&urls.join(",")).unwrap();
    server.recovery.drain_timeout = DRAIN;
    server.forward_headers = vec![HeaderName::from_static("x-tenant")];
    config.servers.insert("s".parse().unwrap(), server);
    Config { store, ..config }
}

#[tokio::test]
async fn a_call_at_another_gateway_ends_before_its_session_does() {
    let redis = Redis::start().await.unwrap();
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let store = in_redis(&redis);
    let a = Gateway::start(over(store.clone(), &[old.url()]))
        .await
        .unwrap();
    let mut client = Client::new(&a);
    let opening = client
        .post(&initialize_message())
        .header("x-tenant", "acme");
    let (opened, ()) = tokio::join!(opening.send(), async {
        old.next().await.initialized(Some("u1"));
    });
    client.session = opened.unwrap().headers().get("mcp-session-id").cloned();
    let b = Gateway::start(over(store.clone(), &[old.url(), new.url()]))
        .await
        .unwrap();
    let mut at_b = client.clone();
    at_b.url = Client::new(&b).url;
    // A call that may not run twice, at the one gateway; the other moves the session.
    let running = TaskTracker::new().spawn(async move {
        let calling = at_b.post(&call("at b")).send();
        read(calling.await.unwrap()).await
    });
    let call_at_b = old.next().await;
    assert_eq!(call_at_b.header("mcp-session-id"), "u1");
    a.reload(over(store, &[new.url()])).unwrap();
    let moving = new.next().await;
    assert_eq!(
        (moving.rpc_method().as_str(), moving.header("x-tenant")),
        ("initialize", "acme")
    );
    moving.initialized(Some("u2"));
    // Not a request more comes to the old one while the call runs.
    let early = tokio::time::timeout(DRAIN / 2, old.next()).await;
    assert!(early.is_err(), "{early:?}");
    call_at_b.result(&json!({"ran": true}));
    let answer = running.await.unwrap();
    assert_eq!(answer.json()["result"], json!({"ran": true}));
    // Its time is over: now it is ended, as it was opened.
    let ended = old.next().await;
    assert_eq!(
        (ended.method.as_str(), ended.header("mcp-session-id")),
        ("DELETE", "u1")
    );
    assert_eq!(ended.header("x-tenant"), "acme");
    ended.reply(204, &[], "");
    let message = call("after");
    let answer = client.send_to(&mut new, &message, |asked| {
        assert_eq!(asked.header("mcp-session-id"), "u2");
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.status, 200);
    // Neither waits for anything when it stops.
    a.stop().await;
    b.stop().await;
    old.finish();
    new.finish();
}
