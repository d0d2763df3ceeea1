//! Gateways on one store: one generation is published whoever dies, and what is at hand is a cache of what is
//! kept.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, OnLoss};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::Scripted;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::kit::across::Across;
use crate::kit::client::Client;
use crate::kit::gateway::{config, with_admin};
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::{command, in_file, in_redis, keys, raw};

fn quick(config: &mut Config) {
    let server = config.servers.values_mut().next().unwrap();
    server.recovery.budget = Duration::from_secs(9);
}

#[tokio::test]
async fn a_gateway_that_dies_in_the_middle_of_a_recovery_is_stood_in_for() {
    let mut across = Across::start_with(2, quick).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    // As a gateway leaves it that died after it took its turn: nobody gives the turn back.
    let mut connection = raw(&across.redis).await;
    let key = keys(&mut connection).await.remove(0);
    let name = key.trim_start_matches("test:{").trim_end_matches('}');
    let lease = format!("test:lease:{{mend/{name}}}");
    let turn = command(&["SET", &lease, "somebody dead", "PX", "3000"]);
    turn.exec_async(&mut connection).await.unwrap();
    let began = Instant::now();
    let (message, again) = (call(1), call(2));
    let at_b = across.at(&client, 1);
    let (one, two, opened) = tokio::join!(client.send(&message), at_b.send(&again), async {
        let mut opened = 0;
        for answered in [false, false, true, true] {
            // Two that meet the loss; one that opens it again; two that are answered.
            let mut asked = across.server.next().await;
            if asked.rpc_method() == "initialize" {
                opened += 1;
                assert!(
                    began.elapsed() >= Duration::from_millis(2900),
                    "out of turn"
                );
                asked.initialized(Some("u2"));
                asked = across.server.next().await;
            }
            match answered {
                false => forgot(asked),
                true => asked.result(&json!({})),
            }
        }
        opened
    });
    assert_eq!(
        (one.status.as_u16(), two.status.as_u16(), opened),
        (200, 200, 1)
    );
    assert!(
        began.elapsed() < Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
    across.server.finish();
}

#[tokio::test]
async fn of_two_that_recover_at_once_one_is_published_and_the_other_goes() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    let mut connection = raw(&across.redis).await;
    let (message, again) = (call(1), call(2));
    let at_b = across.at(&client, 1);
    let (one, two, ()) = tokio::join!(
        client.send(&message),
        async { at_b.send(&again).await },
        async {
            let server = &mut across.server;
            forgot(server.next().await);
            forgot(server.next().await);
            let first = server.next().await;
            assert_eq!(first.rpc_method(), "initialize");
            // Its turn is over before it has come to anything, so the other begins as well.
            let key = keys(&mut connection).await.remove(0);
            let name = key.trim_start_matches("test:{").trim_end_matches('}');
            let over = command(&["DEL", &format!("test:lease:{{mend/{name}}}")]);
            over.exec_async(&mut connection).await.unwrap();
            let second = server.next().await;
            assert_eq!(second.rpc_method(), "initialize");
            second.initialized(Some("winner"));
            let answered = server.next().await;
            assert_eq!(answered.header("mcp-session-id"), "winner");
            answered.result(&json!({}));
            first.initialized(Some("loser"));
            let mut deleted = false;
            for _ in 0..2 {
                let asked = server.next().await;
                if asked.method == "DELETE" {
                    assert_eq!(asked.header("mcp-session-id"), "loser");
                    asked.reply(204, &[], "");
                    deleted = true;
                } else {
                    assert_eq!(asked.header("mcp-session-id"), "winner");
                    asked.result(&json!({}));
                }
            }
            assert!(deleted);
        }
    );
    assert_eq!((one.status.as_u16(), two.status.as_u16()), (200, 200));
    for gateway in [0, 1] {
        across.works_at(&client, gateway, "winner").await;
    }
    across.server.finish();
}

#[tokio::test]
async fn a_recovery_that_finds_the_session_ended_leaves_nothing_behind() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    let message = call(1);
    let at_b = across.at(&client, 1);
    let running = TaskTracker::new().spawn({
        let client = client.clone();
        async move { client.send(&message).await }
    });
    forgot(across.server.next().await);
    let initialize = across.server.next().await;
    assert_eq!(initialize.rpc_method(), "initialize");
    let (ended, ()) = tokio::join!(at_b.delete().send(), async {
        let asked = across.server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(404, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    initialize.initialized(Some("newborn"));
    let asked = across.server.next().await;
    assert_eq!(asked.method, "DELETE");
    assert_eq!(asked.header("mcp-session-id"), "newborn");
    asked.reply(204, &[], "");
    assert_eq!(running.await.unwrap().status, 404);
    across.server.finish();
}

/// A near cache that is too small.
const NEAR: usize = 5;

/// Opens sessions over a near cache that is too small for them, and uses each again.
async fn more_than_fit(gateway: &Gateway, server: &mut Scripted) {
    let mut clients = Vec::new();
    for number in 0..60 {
        let upstream = format!("u{number}");
        clients.push((Client::open(gateway, server, &upstream).await, upstream));
    }
    for (client, upstream) in &clients {
        let message = call(1);
        let answer = client.send_to(server, &message, |asked| {
            assert_eq!(asked.header("mcp-session-id"), upstream);
            asked.result(&json!({}));
        });
        assert_eq!(answer.await.status, 200);
    }
    let told = crate::kit::client::read(
        Client::at(format!("http://{}/api/sessions", gateway.admin().unwrap()))
            .request(reqwest::Method::GET)
            .send()
            .await
            .unwrap(),
    );
    let told = told.await.json();
    let at_hand = told["sessions"]
        .as_array()
        .or(told.as_array())
        .unwrap()
        .len();
    assert!(at_hand <= NEAR, "{at_hand} at hand");
}

#[tokio::test]
async fn what_gives_way_in_the_near_cache_is_found_in_redis() {
    let redis = Redis::start().await.unwrap();
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.store = in_redis(&redis);
    config.store.cache = NEAR;
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    more_than_fit(&gateway, &mut server).await;
    server.finish();
}

#[tokio::test]
async fn what_gives_way_in_the_near_cache_is_found_in_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.store = in_file(directory.path());
    config.store.cache = NEAR;
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    more_than_fit(&gateway, &mut server).await;
    server.finish();
}

#[tokio::test]
async fn a_session_that_is_used_is_kept_and_one_that_is_not_is_ended_once() {
    let idle = Duration::from_secs(2);
    let mut across = Across::start_with(2, |config| config.limits.session_idle = idle).await;
    let used = across.open().await;
    // Used at another gateway than the one that opened it.
    let elsewhere = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    let unused = Client::open(&across.gateways[0], &mut across.server, "u3").await;
    across.works_at(&unused, 1, "u3").await;
    let mut connection = raw(&across.redis).await;
    assert_eq!(keys(&mut connection).await.len(), 3);
    // Twice as long as nobody may use it.
    let mut deleted = Vec::new();
    for round in 0..16 {
        tokio::time::sleep(idle / 8).await;
        for (client, gateway) in [(&used, round % 2), (&elsewhere, 1)] {
            let (at, message) = (across.at(client, gateway), call(1));
            let sent = at.send(&message);
            tokio::pin!(sent);
            loop {
                tokio::select! {
                    answer = &mut sent => break assert_eq!(answer.status, 200),
                    asked = across.server.next() => match asked.method.as_str() {
                        "DELETE" => {
                            deleted.push(asked.header("mcp-session-id").to_owned());
                            asked.reply(204, &[], "");
                        }
                        _ => asked.result(&json!({})),
                    },
                }
            }
        }
    }
    assert_eq!(deleted, ["u3"]);
    assert_eq!(keys(&mut connection).await.len(), 2);
    for gateway in [0, 1] {
        let at = across.at(&unused, gateway);
        assert_eq!(at.send(&call(1)).await.status, 404);
    }
    across.server.finish();
}

#[tokio::test]
async fn an_open_stream_keeps_its_session() {
    let idle = Duration::from_secs(2);
    let mut across = Across::start_with(2, |config| config.limits.session_idle = idle).await;
    let client = across.open().await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    tokio::time::sleep(idle * 2).await;
    across.works_at(&client, 1, "u1").await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");
}

#[tokio::test]
async fn a_session_is_as_old_as_it_is_wherever_it_is_used() {
    let age = Duration::from_secs(3);
    let mut across =
        Across::start_with(2, |config| config.limits.session_max_age = Some(age)).await;
    let client = across.open().await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    across.works_at(&client, 1, "u1").await;
    tokio::time::sleep(Duration::from_millis(2600)).await;
    let at_b = across.at(&client, 1);
    assert_eq!(at_b.send(&call(1)).await.status, 404);
    let asked = across.server.next().await;
    assert_eq!(asked.method, "DELETE");
    asked.reply(204, &[], "");
    assert_eq!(client.send(&call(1)).await.status, 404);
    across.server.finish();
}

#[tokio::test]
async fn a_gateway_that_has_only_a_stream_of_a_session_ends_it_when_it_is_too_old() {
    let age = Duration::from_secs(3);
    let mut across =
        Across::start_with(2, |config| config.limits.session_max_age = Some(age)).await;
    let client = across.open().await;
    let at_b = across.at(&client, 1);
    let (events, pen) = at_b.open_stream(&mut across.server, at_b.get()).await;
    // The one that opened the session is gone: nobody else sees how old it is.
    across.gateways.remove(0).stop().await;
    let ((), ()) = tokio::join!(events.ends_cleanly(), pen.closed());
    let asked = across.server.next().await;
    assert_eq!(asked.method, "DELETE");
    asked.reply(204, &[], "");
    assert_eq!(at_b.send(&call(1)).await.status, 404);
    across.server.finish();
}

#[tokio::test]
async fn a_loss_that_is_to_be_told_ends_the_session_everywhere() {
    let mut across = Across::start_with(2, |config| {
        let server = config.servers.values_mut().next().unwrap();
        server.recovery.on_loss = OnLoss::Tell;
    })
    .await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    let message = call(1);
    let told = client.send_to(&mut across.server, &message, forgot);
    assert_eq!(told.await.status, 404);
    let at_b = across.at(&client, 1);
    crate::kit::across::until_gone(&mut across, &at_b).await;
    across.server.finish();
}
