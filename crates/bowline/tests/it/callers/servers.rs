//! A caller that may use some servers only: the others are not there for it, on any front, and what it had there ends
//! when the operator takes them away.

use std::collections::BTreeMap;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, Config, KeyHash};
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::events::Events;
use crate::kit::gateway::config;
use crate::kit::messages::{call, initialize_message};

/// Callers with the keys `k-NAME`, and the servers that they may use.
fn callers(named: &[(&str, Option<&[&str]>)]) -> BTreeMap<CallerName, Caller> {
    let caller = |(name, servers): &(&str, Option<&[&str]>)| {
        let key = KeyHash::of(format!("k-{name}").as_bytes());
        let caller = Caller {
            servers: servers.map(|names| names.iter().map(|it| it.parse().unwrap()).collect()),
            ..Caller::with_key(key)
        };
        (name.parse().unwrap(), caller)
    };
    named.iter().map(caller).collect()
}

fn with(servers: &[(&str, &str)], named: &[(&str, Option<&[&str]>)]) -> Config {
    Config {
        callers: callers(named),
        ..config(servers)
    }
}

#[tokio::test]
async fn a_server_that_a_caller_may_not_use_is_not_there() {
    let (mut server, other) = (Scripted::start().await, Scripted::start().await);
    let servers = [("s", server.url()), ("t", other.url())];
    let config = with(&servers, &[("ann", None), ("bob", Some(&["s"]))]);
    let gateway = Gateway::start(config).await.unwrap();
    let at =
        |path: &str, key| Client::at(format!("http://{}{path}", gateway.listen())).with_key(key);
    for path in ["/mcp/%", "/%/mcp", "/sse/%", "/%/sse", "/sse/%/token"] {
        let mut answers = Vec::new();
        for name in ["t", "none"] {
            let client = at(&path.replace('%', name), "k-bob");
            for request in [
                client.get(),
                client.post(&initialize_message()),
                client.delete(),
            ] {
                let answer = sent(request).await;
                assert_eq!(answer.status, 404, "{path} {}", answer.text);
                answers.push(answer.text);
            }
        }
        let (refused, unknown) = answers.split_at(3);
        assert_eq!(refused, unknown, "{path}");
    }
    // What it may use is there.
    let client = at("/mcp/s", "k-bob").opened(&mut server, "u").await;
    let message = call(1);
    let answer = client.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
    other.finish();
}

#[tokio::test]
async fn a_reload_takes_a_server_away_with_its_sessions_and_streams() {
    let (mut server, other) = (Scripted::start().await, Scripted::start().await);
    let servers = [("s", server.url()), ("t", other.url())];
    let before = with(&servers, &[("ann", None), ("bob", Some(&["s", "t"]))]);
    let after = with(&servers, &[("ann", Some(&["s"])), ("bob", Some(&["t"]))]);
    let gateway = Gateway::start(before.clone()).await.unwrap();
    let (mut clients, mut streams) = (Vec::new(), Vec::new());
    for (key, id) in [("k-ann", "a"), ("k-bob", "b")] {
        let client = Client::new(&gateway).with_key(key);
        let client = client.opened(&mut server, id).await;
        for request in [client.get(), client.post(&call(1))] {
            let (mut events, mut pen) = client.open_stream(&mut server, request).await;
            pen.write("data: {}\n\n");
            events.next().await;
            streams.push((events, pen));
        }
        clients.push(client);
    }
    gateway.reload(after).unwrap();
    for (mut events, pen) in streams.drain(2..) {
        assert!(is_over(&mut events).await);
        let closed = tokio::time::timeout(PATIENCE, pen.closed()).await;
        assert!(closed.is_ok(), "the server's side is still read");
    }
    for (mut events, mut pen) in streams {
        pen.write("data: {}\n\n");
        assert_eq!(events.next().await, "data: {}\n\n");
    }
    let [ann, bob] = &clients[..] else {
        panic!("two clients");
    };
    let message = call(2);
    let served = ann.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(served.await.status, 200);
    for request in [bob.post(&message), bob.get(), bob.delete()] {
        let answer = sent(request).await;
        assert_eq!(answer.status, 404, "{}", answer.text);
        assert_eq!(answer.json()["error"]["data"]["reason"], "no_such_server");
    }
    // Its session was not ended, and is its own when it may use the server again.
    gateway.reload(before).unwrap();
    let served = bob.send_to(&mut server, &message, |asked| asked.result(&json!({})));
    assert_eq!(served.await.status, 200);
    other.finish();
}

async fn is_over(events: &mut Events) -> bool {
    let reading = async { while let Ok(Some(_)) = events.try_next().await {} };
    tokio::time::timeout(PATIENCE, reading).await.is_ok()
}
