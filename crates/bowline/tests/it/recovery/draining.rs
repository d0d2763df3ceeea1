//! An endpoint that is to go keeps its sessions for a while, and then they go on elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, OnLoss, Server};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::config;
use crate::kit::messages::call;

/// Long enough that a test sees what happens before it is over.
const DRAIN: Duration = Duration::from_secs(1);

fn over(urls: &[&str]) -> Config {
    let mut config = config(&[]);
    let mut server = Server::from_urls(&urls.join(",")).unwrap();
    server.recovery.drain_timeout = DRAIN;
    config.servers.insert("s".parse().unwrap(), server);
    config
}

#[tokio::test]
async fn a_session_stays_until_the_time_is_over_and_then_moves_without_losing_a_call() {
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(over(&[old.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u1").await;
    gateway.reload(over(&[new.url()])).unwrap();
    // It still serves its session, and a call that may not run twice goes on there.
    let served = client
        .send_to(&mut old, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(served.status, 200);
    let (mut events, mut pen) = client.open_stream(&mut old, client.post(&call(2))).await;
    let opening = new.next().await;
    assert_eq!(opening.rpc_method(), "initialize");
    opening.initialized(Some("u2"));
    // Once a call goes to the new one the session has moved.
    loop {
        let message = call(3);
        let (answer, moved) = tokio::join!(client.send(&message), async {
            tokio::select! {
                asked = old.next() => {
                    asked.result(&json!({}));
                    false
                }
                asked = new.next() => {
                    assert_eq!(asked.header("mcp-session-id"), "u2");
                    asked.result(&json!({}));
                    true
                }
            }
        });
        assert_eq!(answer.status, 200);
        if moved {
            break;
        }
    }
    // The old session is ended by the end of its call, and not before.
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "n");
    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\n\n");
    drop(pen);
    assert_eq!(events.next_message().await.1["id"], 2);
    events.ends_cleanly().await;
    let deleted = old.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "u1")
    );
    deleted.reply(200, &[], "");
    old.finish();
    new.finish();
}

#[tokio::test]
async fn a_call_that_never_ends_does_not_keep_the_old_session_for_ever() {
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(over(&[old.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u1").await;
    gateway.reload(over(&[new.url()])).unwrap();
    let (_events, pen) = client.open_stream(&mut old, client.post(&call(2))).await;
    new.next().await.initialized(Some("u2"));
    let deleted = old.next().await;
    assert_eq!(deleted.method, "DELETE");
    assert!(pen.is_open());
    old.finish();
}

#[tokio::test]
async fn sessions_move_a_few_at_a_time() {
    let (mut old, mut new) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(over(&[old.url()])).await.unwrap();
    for session in 0..12 {
        Client::open(&gateway, &mut old, &format!("u{session}")).await;
    }
    gateway.reload(over(&[new.url()])).unwrap();
    let mut opening = Vec::new();
    for _ in 0..8 {
        opening.push(new.next().await);
    }
    let ninth = tokio::time::timeout(DRAIN / 2, new.next()).await;
    assert!(ninth.is_err(), "{ninth:?}");
    for (session, asked) in opening.into_iter().enumerate() {
        asked.initialized(Some(&format!("v{session}")));
    }
    for session in 8..12 {
        new.next().await.initialized(Some(&format!("v{session}")));
    }
    for _ in 0..12 {
        assert_eq!(old.next().await.method, "DELETE");
    }
    old.finish();
    new.finish();
}

#[tokio::test]
async fn an_endpoint_that_is_named_again_keeps_its_sessions() {
    let (mut old, new) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(over(&[old.url()])).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u1").await;
    gateway.reload(over(&[new.url()])).unwrap();
    gateway.reload(over(&[old.url(), new.url()])).unwrap();
    tokio::time::sleep(DRAIN + DRAIN / 2).await;
    let served = client
        .send_to(&mut old, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(served.status, 200);
    new.finish();
}

#[tokio::test]
async fn a_server_whose_memory_is_the_point_keeps_its_sessions_until_it_refuses_them() {
    let (mut old, new) = (Scripted::start().await, Scripted::start().await);
    let tell = |url: &str| {
        let mut config = over(&[url]);
        for server in config.servers.values_mut() {
            server.recovery.on_loss = OnLoss::Tell;
        }
        config
    };
    let gateway = Gateway::start(tell(old.url())).await.unwrap();
    let client = Client::open(&gateway, &mut old, "u1").await;
    gateway.reload(tell(new.url())).unwrap();
    tokio::time::sleep(DRAIN + DRAIN / 2).await;
    let served = client
        .send_to(&mut old, &call(1), |asked| asked.result(&json!({})))
        .await;
    assert_eq!(served.status, 200);
    let refused = client
        .send_to(&mut old, &call(2), |asked| asked.reply(404, &[], ""))
        .await;
    assert_eq!(refused.status, 404);
    new.finish();
}

/// Sixteen sessions call all the time while every replica is replaced by another, one by one.
#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_that_replaces_every_replica_loses_nothing() {
    let tally = Tally::default();
    let mut replicas = Vec::new();
    for name in ["a", "b", "c", "d"] {
        replicas.push(Counting::start(name, &tally).await.unwrap());
    }
    let [a, b, c, d] = &replicas[..] else {
        panic!()
    };
    let at = |urls: [&Counting; 2]| over(&[&urls[0].url(), &urls[1].url()]);
    let gateway = Gateway::start(at([a, b])).await.unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let mut calling: JoinSet<u32> = JoinSet::new();
    for session in 0..16 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.initialize().await.status, 200);
        assert_eq!(client.send(&tools()).await.status, 200);
        let (done, tally) = (Arc::clone(&done), tally.clone());
        calling.spawn(async move {
            let mut calls = 0;
            while !done.load(Ordering::Relaxed) {
                for tool in ["read", "bump", "slow", "stream_read"] {
                    let key = format!("{session}-{calls}-{tool}");
                    let answer = client.send(&call_tool(&key, tool)).await;
                    assert_is_result(&answer, &key);
                    assert_eq!(tally.executions(&key), 1, "{key}");
                }
                calls += 1;
            }
            calls
        });
    }
    assert!(a.sessions().len() > 2 && b.sessions().len() > 2);
    for (left, next) in [(a, at([c, b])), (b, at([c, d]))] {
        gateway.reload(next).unwrap();
        wait_until(|| left.sessions().is_empty()).await;
        assert_eq!(left.deletes(), left.initializes(), "each is ended once");
        left.die().await;
    }
    // Everything that was called on the way is answered.
    done.store(true, Ordering::Relaxed);
    while let Some(calls) = calling.join_next().await {
        assert!(calls.unwrap() > 0);
    }
    assert_eq!(c.sessions().len() + d.sessions().len(), 16);
    assert!(replicas.iter().all(|replica| replica.strays() == 0));
}

fn tools() -> Value {
    json!({"jsonrpc": "2.0", "id": 0, "method": "tools/list"})
}

fn call_tool(key: &str, tool: &str) -> Value {
    let arguments = json!({"key": key, "steps": 3, "ms": 20});
    json!({"jsonrpc": "2.0", "id": key, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}

fn assert_is_result(answer: &Answer, key: &str) {
    assert_eq!(answer.status, 200, "{key}: {}", answer.text);
    assert!(answer.text.contains("\"result\""), "{key}: {}", answer.text);
}

async fn wait_until(is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting)
        .await
        .expect("it to become so");
}
