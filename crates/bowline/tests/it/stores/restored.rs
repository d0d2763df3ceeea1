//! A Redis that was restored from an older snapshot costs no more than a recovery; one that hangs has
//! nothing piled up for it.

use std::time::Duration;

use bowline_testbed::scripted::{PATIENCE, initialize_result};
use serde_json::{Value, json};

use crate::kit::across::{Across, with_grace};
use crate::kit::client::Client;
use crate::kit::gateway::admin;
use crate::kit::messages::{call, list};
use crate::kit::opened::forgot;
use crate::kit::stores::{command, keys, raw};

/// What a server says whose tools may change.
fn offers_changes() -> Value {
    let mut result = initialize_result();
    result["capabilities"]["tools"] = json!({"listChanged": true});
    result
}

/// Loses the session of the upstream, and recovers it as this one.
async fn recovers(across: &mut Across, client: &Client, as_this: &str) {
    let message = call("loser");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(across.server.next().await);
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", as_this)], &offers_changes());
        // What the client has set is set again before.
        let mut is_call = false;
        while !is_call {
            let asked = across.server.next().await;
            assert_eq!(asked.header("mcp-session-id"), as_this);
            is_call = asked.rpc_method() == "tools/call";
            asked.result(&json!({}));
        }
    });
    assert_eq!(answer.status, 200, "{answer:?}");
}

async fn sets_level(across: &mut Across, client: &Client, level: &str) {
    let message: Value = json!({"jsonrpc": "2.0", "id": level, "method": "logging/setLevel", "params": {"level": level}});
    let answer = client.send_to(&mut across.server, &message, |asked| {
        asked.result(&json!({}));
    });
    assert_eq!(answer.await.status, 200);
}

/// Waits until the session works at a gateway, on this upstream session.
async fn until_it_works(across: &mut Across, client: &Client, upstream: &str) {
    let waiting = async {
        loop {
            let message = call("again");
            let sent = client.send(&message);
            tokio::pin!(sent);
            let answer = loop {
                tokio::select! {
                    answer = &mut sent => break answer,
                    asked = across.server.next() => match asked.header("mcp-session-id") == upstream {
                        true => asked.result(&json!({})),
                        // A gateway that has not heard of the newer one yet.
                        false => forgot(asked),
                    }
                }
            };
            match answer.status.as_u16() {
                200 => return,
                // It is not back yet.
                503 => tokio::time::sleep(Duration::from_millis(50)).await,
                other => panic!("{other}: {answer:?}"),
            }
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "it never works");
}

#[tokio::test]
async fn what_a_gateway_knows_is_written_on_top_of_an_older_snapshot() {
    let mut across = Across::start_with(1, with_grace).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    command(&["SAVE"])
        .exec_async(&mut connection)
        .await
        .unwrap();
    recovers(&mut across, &client, "u2").await;
    sets_level(&mut across, &client, "debug").await;
    let later = Client::open(&across.gateways[0], &mut across.server, "late").await;
    across.redis.kill().await.unwrap();
    across.redis.restart_from_snapshot().await.unwrap();
    // The snapshot knows the first generation of one of them, and nothing of the other. At the gateway that
    // knows more they are used as before, until it has noticed and written what it knows.
    let mut connection = raw(&across.redis).await;
    let began = tokio::time::Instant::now();
    loop {
        until_it_works(&mut across, &client, "u2").await;
        until_it_works(&mut across, &later, "late").await;
        let mut versions = Vec::new();
        for key in keys(&mut connection).await {
            let version = command(&["HGET", &key, "v"]);
            let version: u64 = version.query_async(&mut connection).await.unwrap();
            versions.push(version);
        }
        versions.sort_unstable();
        if versions == [1, 2] {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "versions {versions:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Whoever never saw them is told by the store.
    let config = across.config(crate::kit::stores::in_redis(&across.redis));
    across
        .gateways
        .push(bowline::Gateway::start(config).await.unwrap());
    across.works_at(&client, 1, "u2").await;
    across.works_at(&later, 1, "late").await;
    // And they can be written, lost and recovered, at either.
    sets_level(&mut across, &client, "info").await;
    recovers(&mut across, &client, "u3").await;
    let at_b = across.at(&client, 1);
    until_it_works(&mut across, &at_b, "u3").await;
    recovers(&mut across, &later, "later").await;
    across.server.finish();
}

/// Sends a request in a session of which the server knows this one only. If it is opened again as that, Redis
/// empties meanwhile.
async fn calls(across: &mut Across, client: &Client, as_this: &str) -> bool {
    let mut connection = raw(&across.redis).await;
    // A gateway that has not heard of the newest generation meets two losses in a row. Only a request that is
    // safe to repeat goes on after the second.
    let message = list("loser");
    let sent = client.send(&message);
    tokio::pin!(sent);
    let mut has_emptied = false;
    let answer = loop {
        tokio::select! {
            answer = &mut sent => break answer,
            asked = across.server.next() => {
                if asked.rpc_method() == "initialize" {
                    command(&["FLUSHALL"]).exec_async(&mut connection).await.unwrap();
                    has_emptied = true;
                    asked.initialized(Some(as_this));
                } else if asked.header("mcp-session-id") == as_this {
                    asked.result(&json!({}));
                } else {
                    forgot(asked);
                }
            }
        }
    };
    assert_eq!(answer.json()["result"], json!({}), "{answer:?}");
    has_emptied
}

#[tokio::test]
async fn a_redis_that_empties_while_a_session_is_recovered_costs_no_session() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    assert!(calls(&mut across, &client, "u2").await);
    // Recovered by the other one that knows it, and by one whose first call this is.
    for (gateway, upstream) in [(1, "u3"), (2, "u4")] {
        let client = across.at(&client, gateway);
        assert!(calls(&mut across, &client, upstream).await);
    }
    for gateway in 0..3 {
        let client = across.at(&client, gateway);
        assert!(!calls(&mut across, &client, "u4").await, "opened again");
    }
    across.server.finish();
}

#[tokio::test]
async fn a_session_that_was_ended_stays_so_also_if_redis_empties_while_it_is_recovered() {
    let mut across = Across::start(1).await;
    let client = across.open().await;
    let message = call("loser");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(across.server.next().await);
        let opening = across.server.next().await;
        let deleting = client.delete().send();
        tokio::pin!(deleting);
        let ended = loop {
            tokio::select! {
                ended = &mut deleting => break ended,
                asked = across.server.next() => forgot(asked),
            }
        };
        assert_eq!(ended.unwrap().status(), 204);
        let mut connection = raw(&across.redis).await;
        let emptied = command(&["FLUSHALL"]);
        emptied.exec_async(&mut connection).await.unwrap();
        opening.initialized(Some("u2"));
        // Nobody needs what was opened.
        loop {
            let asked = across.server.next().await;
            assert_ne!(asked.rpc_method(), "tools/call");
            match (asked.header("mcp-session-id"), asked.method.as_str()) {
                ("u2", "DELETE") => break asked.reply(204, &[], ""),
                ("u2", _) => asked.reply(202, &[], ""),
                _ => forgot(asked),
            }
        }
    });
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(client.send(&message).await.status, 404);
}

/// How often the store was asked to let a session go.
async fn expiries(across: &Across) -> u64 {
    let text = admin(&across.gateways[0], "/metrics").await.text;
    let asked = text
        .lines()
        .filter(|line| line.starts_with(r#"bowline_store_operations_total{operation="expire""#));
    asked
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[tokio::test]
async fn expiry_does_not_pile_up_while_redis_hangs() {
    let mut across = Across::start_with(1, |config| {
        with_grace(config);
        config.limits.session_idle = Duration::from_secs(2);
    })
    .await;
    for number in 0..30 {
        Client::open(
            &across.gateways[0],
            &mut across.server,
            &format!("u{number}"),
        )
        .await;
    }
    across.redis.pause().await.unwrap();
    // They are unused after 2.4 s; half a second is looked between.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let meanwhile = expiries(&across).await;
    assert!(meanwhile <= 3, "{meanwhile} were asked for while it hung");
    across.redis.resume().await.unwrap();
    let mut deleted = 0;
    let waiting = async {
        while deleted < 30 {
            let asked = across.server.next().await;
            assert_eq!(asked.method, "DELETE");
            asked.reply(204, &[], "");
            deleted += 1;
        }
    };
    // Those that Redis itself forgot are not ended at the server.
    tokio::time::timeout(Duration::from_secs(5), waiting)
        .await
        .ok();
    let all = expiries(&across).await;
    assert!(all <= 40, "{all} were asked for in all");
}

#[tokio::test]
async fn cookies_that_could_not_be_written_are_written_without_another_use() {
    let mut across = Across::start_with(2, |config| {
        with_grace(config);
        config.limits.session_idle = Duration::from_secs(20);
    })
    .await;
    let client = across.open().await;
    across.redis.pause().await.unwrap();
    let message = call("cookie");
    let set = client.send_to(&mut across.server, &message, |asked| {
        asked.result_with(&[("set-cookie", "SRV=r1; path=/")], &json!({}));
    });
    assert_eq!(set.await.status, 200);
    // Until the write has failed, and then some.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    across.redis.resume().await.unwrap();
    let at_b = across.at(&client, 1);
    let began = tokio::time::Instant::now();
    loop {
        let message = call("cookie?");
        let sent = at_b.send(&message);
        tokio::pin!(sent);
        let mut has_cookie = false;
        let answer = loop {
            tokio::select! {
                answer = &mut sent => break answer,
                asked = across.server.next() => {
                    has_cookie = asked.headers.contains_key("cookie");
                    asked.result(&json!({}));
                }
            }
        };
        if answer.status == 200 && has_cookie {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "never: {answer:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The events that a client's GET shows until the server's own comes.
async fn told(across: &mut Across, client: &Client) -> Vec<String> {
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/last\"}\n\n");
    let mut told = Vec::new();
    loop {
        let method = events.next_message().await.1["method"].clone();
        match method.as_str().unwrap() {
            "x/last" => return told,
            other => told.push(other.to_owned()),
        }
    }
}

#[tokio::test]
async fn a_session_that_is_read_again_tells_only_what_was_not_told() {
    let mut across = Across::start(1).await;
    let mut client = Client::new(&across.gateways[0]);
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &offers_changes());
    });
    assert_eq!(opened.status, 200);
    recovers(&mut across, &client, "u2").await;
    // Read by another gateway before the client was told, and after.
    let anew = async |across: &mut Across| {
        let config = across.config(crate::kit::stores::in_redis(&across.redis));
        across
            .gateways
            .push(bowline::Gateway::start(config).await.unwrap());
        across.at(&client, across.gateways.len() - 1)
    };
    let second = anew(&mut across).await;
    assert_eq!(
        told(&mut across, &second).await,
        ["notifications/tools/list_changed"]
    );
    // The store is told of it behind the client's back.
    let untold = async |across: &mut Across| {
        let next = anew(across).await;
        told(across, &next).await.is_empty()
    };
    let waiting = async { while !untold(&mut across).await {} };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "each gateway tells it anew");
}
