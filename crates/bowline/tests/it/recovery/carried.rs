//! Whatever Bowline asks by itself in a session carries what the client's own requests do: their query,
//! and the headers that the operator lets through.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use http::HeaderName;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::messages::{call, initialize_message};
use crate::kit::opened::forgot;
use crate::kit::stores::in_file;

/// A configuration before this server that lets `x-tenant` and `x-trace` through.
pub(crate) fn with_tenants(url: &str) -> Config {
    let mut config = config(&[("s", url)]);
    let server = config.servers.values_mut().next().unwrap();
    server.forward_headers = ["x-tenant", "x-trace"]
        .map(HeaderName::from_static)
        .to_vec();
    config
}

/// A session whose `initialize` carried a tenant, in the query and in a header.
async fn opened(gateway: &Gateway, server: &mut Scripted) -> Client {
    let mut client = Client::new(gateway);
    let mut at_tenant = client.clone();
    at_tenant.url += "?tenant=acme";
    let opening = at_tenant
        .post(&initialize_message())
        .header("x-tenant", "acme")
        .header("x-trace", "opening");
    let (answer, ()) = tokio::join!(opening.send(), async {
        let asked = server.next().await;
        assert_carries(&asked, "acme", "opening");
        asked.initialized(Some("u1"));
    });
    client.session = answer.unwrap().headers().get("mcp-session-id").cloned();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let told = client.send_to(server, &ready, |asked| asked.reply(202, &[], ""));
    assert_eq!(told.await.status, 202);
    client
}

fn assert_carries(asked: &Asked, tenant: &str, trace: &str) {
    let carried = (
        asked.target.as_str(),
        asked.header("x-tenant"),
        asked.header("x-trace"),
    );
    let target = format!("/mcp?tenant={tenant}");
    assert_eq!(carried, (target.as_str(), tenant, trace), "{asked:?}");
}

/// The next request is a part of a recovery, and carries this.
async fn restored(server: &mut Scripted, id: &str, tenant: &str, trace: &str) {
    let asked = server.next().await;
    assert_eq!(asked.rpc_method(), "initialize");
    assert_carries(&asked, tenant, trace);
    asked.initialized(Some(id));
    let asked = server.next().await;
    assert_eq!(asked.rpc_method(), "notifications/initialized");
    assert_carries(&asked, tenant, trace);
    asked.reply(202, &[], "");
}

#[tokio::test]
async fn a_recovery_carries_what_the_request_does_and_otherwise_what_opened_the_session() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(with_tenants(server.url())).await.unwrap();
    let client = opened(&gateway, &mut server).await;

    // A request that says something of its own.
    let mut elsewhere = client.clone();
    elsewhere.url += "?tenant=other";
    let calling = elsewhere.post(&call(1)).header("x-tenant", "other");
    let (answer, ()) = tokio::join!(sent(calling), async {
        forgot(server.next().await);
        restored(&mut server, "u2", "other", "opening").await;
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);

    // One that says nothing; what it carries itself is its own affair.
    let message = call(2);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        restored(&mut server, "u3", "acme", "opening").await;
        let asked = server.next().await;
        assert_eq!(
            (asked.target.as_str(), asked.header("x-tenant")),
            ("/mcp", "")
        );
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200);

    // A ping that has to decide, and the end.
    let message = call(3);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        drop(server.next().await);
        let asked = server.next().await;
        assert_eq!(asked.rpc_method(), "ping");
        assert_carries(&asked, "acme", "opening");
        asked.result(&json!({}));
    });
    assert_eq!(answer.code(), -31001);
    let (ended, ()) = tokio::join!(client.delete().send(), async {
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), asked.header("mcp-session-id")),
            ("DELETE", "u3")
        );
        assert_carries(&asked, "acme", "opening");
        asked.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    server.finish();
}

#[tokio::test]
async fn what_opened_a_session_is_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let stored = |url: &str| Config {
        store: in_file(&directory.path().join("sessions.db")),
        ..with_tenants(url)
    };
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(stored(server.url())).await.unwrap();
    let mut client = opened(&gateway, &mut server).await;
    gateway.stop().await;

    // From now on the operator lets one header less through.
    let mut config = stored(server.url());
    let configured = config.servers.values_mut().next().unwrap();
    configured.forward_headers.pop();
    let gateway = Gateway::start(config).await.unwrap();
    client.url = Client::new(&gateway).url;
    let message = call(1);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        restored(&mut server, "u2", "acme", "").await;
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn a_recovery_that_was_refused_is_tried_again_with_what_the_next_request_carries() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(with_tenants(server.url())).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let message = call(1);
    let (refused, ()) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        server.next().await.reply(401, &[], "");
    });
    assert_eq!(refused.code(), -31003);
    let calling = client.post(&call(2)).header("x-tenant", "acme");
    let (answer, ()) = tokio::join!(sent(calling), async {
        let asked = server.next().await;
        assert_eq!(asked.header("x-tenant"), "acme");
        asked.initialized(Some("u2"));
        server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    server.finish();
}

#[tokio::test]
async fn who_waited_for_a_recovery_that_was_refused_tries_with_what_it_carries_itself() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(with_tenants(server.url())).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u1").await;
    let tasks = TaskTracker::new();
    let first = tasks.spawn(sent(client.post(&call(1))));
    let second = tasks.spawn(sent(client.post(&call(2)).header("x-tenant", "acme")));
    // Both meet the loss before either's recovery is answered.
    let mut lost = Vec::new();
    for _ in 0..2 {
        lost.push(server.next().await);
    }
    lost.sort_by_key(|asked| asked.header("x-tenant").to_owned());
    let with_tenant = lost.pop().unwrap();
    forgot(lost.pop().unwrap());
    let opening = server.next().await;
    assert_eq!(opening.header("x-tenant"), "");
    forgot(with_tenant);
    // Whether it joins the first one's recovery or comes when that is over, its own is the next.
    opening.reply(401, &[], "");
    let again = server.next().await;
    assert_eq!(again.rpc_method(), "initialize");
    assert_eq!(again.header("x-tenant"), "acme");
    again.result_with(&[("mcp-session-id", "u2")], &initialize_result());
    server.next().await.result(&json!({}));
    assert_eq!(first.await.unwrap().code(), -31003);
    assert_eq!(second.await.unwrap().status, 200);
    server.finish();
}
