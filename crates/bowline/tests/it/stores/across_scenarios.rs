//! What the suites of other gateways try over several replicas and one store, or miss.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Caller, Config, KeyHash, Password, StoreKind};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::Faulty;
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::across::{Across, until_gone, with_grace};
use crate::kit::client::{Answer, Client, sent};
use crate::kit::gateway::{admin, config, health};
use crate::kit::log::Log;
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::{command, in_redis, raw};
use crate::kit::wait::until_so;

/// How long an id is that could be a session's.
const ID_CHARS: usize = (bowline_wire::id::SessionId::BYTES * 8).div_ceil(6);

const ALICE: &str = "the-key-of-alice-0123456789abcdef";

const BOB: &str = "the-key-of-bob-0123456789abcdef00";

fn with_callers(config: &mut Config) {
    for (name, key) in [("alice", ALICE), ("bob", BOB)] {
        let key = KeyHash::of(key.as_bytes());
        config
            .callers
            .insert(name.parse().unwrap(), Caller::with_key(key));
    }
    let server = config.servers.values_mut().next().unwrap();
    let token = "Bearer of-the-operator".parse().unwrap();
    server.headers.insert("authorization", token);
}

#[tokio::test]
async fn a_session_is_its_callers_at_every_gateway() {
    let mut across = Across::start_with(2, with_callers).await;
    let client = Client::new(&across.gateways[0]).with_key(ALICE);
    let client = client.opened(&mut across.server, "u1").await;
    for gateway in [0, 1] {
        let mut at = across.at(&client, gateway);
        for (key, status) in [(Some(BOB), 404), (None, 401)] {
            at.key = key;
            assert_eq!(at.send(&call(1)).await.status, status);
            assert_eq!(at.get().send().await.unwrap().status(), status);
            assert_eq!(at.delete().send().await.unwrap().status(), status);
        }
        // The owner goes on, with the credentials of this gateway's configuration.
        let at = across.at(&client, gateway);
        let message = call(1);
        let answer = at.send_to(&mut across.server, &message, |asked| {
            assert_eq!(asked.header("mcp-session-id"), "u1");
            assert_eq!(asked.header("authorization"), "Bearer of-the-operator");
            asked.result(&json!({}));
        });
        assert_eq!(answer.await.status, 200);
    }
    across.server.finish();
}

#[tokio::test]
async fn a_session_of_one_server_is_unknown_at_another() {
    let redis = Redis::start().await.unwrap();
    let mut server = Scripted::start().await;
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let mut config = config(&[("s", server.url()), ("t", server.url())]);
        config.store = in_redis(&redis);
        gateways.push(Gateway::start(config).await.unwrap());
    }
    let client = Client::open(&gateways[0], &mut server, "u1").await;
    for gateway in &gateways {
        let mut at_other = client.clone();
        at_other.url = format!("http://{}/mcp/t", gateway.listen());
        assert_eq!(at_other.send(&call(1)).await.status, 404);
        assert_eq!(at_other.delete().send().await.unwrap().status(), 404);
    }
    // Nothing of that has touched it.
    for gateway in &gateways {
        let at = client.moved_to(gateway);
        let message = call(2);
        let answer = at.send_to(&mut server, &message, |asked| asked.result(&json!({})));
        assert_eq!(answer.await.status, 200);
    }
    server.finish();
}

#[tokio::test]
async fn two_prefixes_in_one_redis_share_nothing() {
    let mut across = Across::start(1).await;
    let client = across.open().await;
    let mut config = across.config(in_redis(&across.redis));
    with_grace(&mut config);
    if let StoreKind::Redis(redis) = &mut config.store.kind {
        redis.prefix = "other".to_owned();
    }
    across.gateways.push(Gateway::start(config).await.unwrap());
    let elsewhere = across.at(&client, 1);
    assert_eq!(elsewhere.send(&call(1)).await.status, 404);
    assert_eq!(elsewhere.delete().send().await.unwrap().status(), 404);
    assert_eq!(
        health(&across.gateways[1]).await["store"]["others"],
        json!([])
    );
    across.works_at(&client, 0, "u1").await;
    across.server.finish();
}

#[tokio::test]
async fn equal_request_ids_of_two_sessions_get_their_own_answers() {
    let mut across = Across::start(2).await;
    let one = across.open().await;
    let two = Client::open(&across.gateways[1], &mut across.server, "u2").await;
    let crossed = across.at(&one, 1);
    let message = call(7);
    let (to_one, to_two, ()) = tokio::join!(crossed.send(&message), two.send(&message), async {
        let asked = [across.server.next().await, across.server.next().await];
        // The later one is answered first.
        for asked in asked.into_iter().rev() {
            let of = asked.header("mcp-session-id").to_owned();
            asked.result(&json!({"of": of}));
        }
    });
    assert_eq!(to_one.json()["result"]["of"], "u1");
    assert_eq!(to_two.json()["result"]["of"], "u2");
}

/// Calls through a gateway that may not have heard yet which of the server's sessions is the one.
async fn answered_on(across: &mut Across, client: &Client, upstream: &str) -> Answer {
    let message = call("again");
    let sent = client.send(&message);
    tokio::pin!(sent);
    loop {
        tokio::select! {
            answer = &mut sent => return answer,
            asked = across.server.next() => match asked.header("mcp-session-id") == upstream {
                true => asked.result_with(&[("mcp-session-id", upstream)], &json!({})),
                false => forgot(asked),
            },
        }
    }
}

#[tokio::test]
async fn after_a_recovery_no_gateway_shows_the_servers_new_id() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let at_b = across.at(&client, 1);
    let message = call(1);
    let (answer, ()) = tokio::join!(at_b.send(&message), async {
        forgot(across.server.next().await);
        across.server.next().await.initialized(Some("u2"));
        let asked = across.server.next().await;
        asked.result_with(&[("mcp-session-id", "u2")], &json!({}));
    });
    assert_eq!(answer.status, 200);
    let at_a = answered_on(&mut across, &client, "u2").await;
    for answer in [answer, at_a] {
        assert_eq!(answer.status, 200);
        let shown = answer.headers.get("mcp-session-id");
        assert!(shown.is_none_or(|id| Some(id) == client.session.as_ref()));
    }
}

#[tokio::test]
async fn an_end_at_one_gateway_leaves_the_clients_next_session_alone() {
    let mut across = Across::start(3).await;
    let old = across.open().await;
    across.works_at(&old, 1, "u1").await;
    // The client starts anew at one gateway while its DELETE arrives at another.
    let mut new = Client::new(&across.gateways[0]);
    new.session.clone_from(&old.session);
    let at_b = across.at(&old, 1);
    let (opened, ended, ()) = tokio::join!(new.initialize(), at_b.delete().send(), async {
        for _ in 0..2 {
            let asked = across.server.next().await;
            match asked.method.as_str() {
                "DELETE" => {
                    assert_eq!(asked.header("mcp-session-id"), "u1");
                    asked.reply(204, &[], "");
                }
                _ => asked.initialized(Some("u2")),
            }
        }
    });
    assert_eq!(
        (opened.status.as_u16(), ended.unwrap().status().as_u16()),
        (200, 204)
    );
    assert_ne!(new.session, old.session);
    for gateway in [0, 1, 2] {
        across.works_at(&new, gateway, "u2").await;
        let at = across.at(&old, gateway);
        until_gone(&mut across, &at).await;
    }
    across.server.finish();
}

#[tokio::test]
async fn of_many_ends_at_several_gateways_one_reaches_the_server() {
    let mut across = Across::start(3).await;
    let client = across.open().await;
    for gateway in [1, 2] {
        across.works_at(&client, gateway, "u1").await;
    }
    let [a, b, c] = [0, 1, 2].map(|gateway| across.at(&client, gateway));
    let (a, b, c, ()) = tokio::join!(
        a.delete().send(),
        b.delete().send(),
        c.delete().send(),
        async {
            let asked = across.server.next().await;
            assert_eq!(asked.method, "DELETE");
            asked.reply(204, &[], "");
        }
    );
    let mut statuses = [a, b, c].map(|ended| ended.unwrap().status().as_u16());
    statuses.sort_unstable();
    assert_eq!(statuses, [204, 404, 404]);
    across.server.finish();
}

#[tokio::test]
async fn a_session_is_not_denied_where_it_is_met_while_its_server_is_away() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let proxy = Faulty::start(server.address()).await.unwrap();
    let redis = Redis::start().await.unwrap();
    let mut gateways = Vec::new();
    for _ in 0..2 {
        let mut config = config(&[("s", &proxy.url())]);
        config.store = in_redis(&redis);
        let server = config.servers.values_mut().next().unwrap();
        server.recovery.budget = Duration::from_secs(1);
        gateways.push(Gateway::start(config).await.unwrap());
    }
    let mut client = Client::new(&gateways[0]);
    assert_eq!(client.begin().await.status, 200);
    proxy.refuse().await;
    let elsewhere = client.moved_to(&gateways[1]);
    let refused = elsewhere
        .call("away", "bump", &json!({"key": "away"}))
        .await;
    assert_eq!(refused.status, 503);
    proxy.accept().unwrap();
    until_so("the session works again", async || {
        let elsewhere = client.moved_to(&gateways[1]);
        let read = elsewhere
            .call("back", "read", &json!({"key": "back"}))
            .await;
        read.status == 200
    })
    .await;
    // The server's own session, as it was.
    assert_eq!((server.initializes(), server.strays()), (1, 0));
    assert_eq!(tally.executions("away"), 0);
}

/// The user that the guide recommends, as arguments of `ACL SETUSER`, for the prefix of tests.
fn recommended_user() -> Vec<String> {
    let guide = include_str!("../../../../../docs/guides/scale-out.md");
    let line = guide.lines().map(str::trim);
    let line = line
        .filter_map(|line| line.strip_prefix("user bowline "))
        .next();
    let rules = line.expect("the guide recommends a user");
    let rules = rules
        .replace("bowline:", "test:")
        .replace("PASSWORD", "pass");
    rules.split(' ').map(str::to_owned).collect()
}

#[tokio::test]
async fn the_user_that_the_guide_recommends_may_do_what_bowline_does() {
    let log = Log::default();
    let _kept = log.keep();
    let mut across = Across::start(0).await;
    let mut connection = raw(&across.redis).await;
    let mut user = command(&["ACL", "SETUSER", "bowline"]);
    user.arg(recommended_user());
    user.exec_async(&mut connection).await.unwrap();
    for _ in 0..2 {
        let mut config = across.config(in_redis(&across.redis));
        with_grace(&mut config);
        if let StoreKind::Redis(redis) = &mut config.store.kind {
            redis.user = Some("bowline".to_owned());
            redis.password = Some(Password::Written("pass".to_owned()));
        }
        across.gateways.push(Gateway::start(config).await.unwrap());
    }
    // Opened, read elsewhere, recovered, with a cookie, ended, announced.
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    let message = call(1);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(across.server.next().await);
        across.server.next().await.initialized(Some("u2"));
        let asked = across.server.next().await;
        asked.result_with(&[("set-cookie", "SRV=r1; path=/")], &json!({}));
    });
    assert_eq!(answer.status, 200);
    let at_b = across.at(&client, 1);
    assert_eq!(answered_on(&mut across, &at_b, "u2").await.status, 200);
    let (ended, ()) = tokio::join!(client.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    until_gone(&mut across, &at_b).await;
    for gateway in &across.gateways {
        assert_eq!(health(gateway).await["store"]["status"], "ok");
        let text = admin(gateway, "/metrics").await.text;
        assert!(!text.contains(r#"outcome="refused""#), "{text}");
    }
    let mut warnings = log.lines_with("WARN");
    // What this machine lets a process open is not the user's doing.
    warnings.retain(|line| !line.contains("the limit of open files"));
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// A gateway on a Redis with TLS, which trusts this authority.
async fn over_tls(redis: &Redis, authority: &Redis, server: &Scripted) -> Gateway {
    let mut config = config(&[("s", server.url())]);
    config.store = in_redis(redis);
    with_grace(&mut config);
    if let StoreKind::Redis(redis) = &mut config.store.kind {
        redis.ca_file = Some(authority.authority());
    }
    Gateway::start(config).await.unwrap()
}

#[tokio::test]
async fn gateways_share_a_redis_with_tls_and_an_authority_of_its_own() {
    let redis = Redis::start_tls().await.unwrap();
    let mut server = Scripted::start().await;
    let gateways = [
        over_tls(&redis, &redis, &server).await,
        over_tls(&redis, &redis, &server).await,
    ];
    let client = Client::open(&gateways[0], &mut server, "u1").await;
    let at_b = client.moved_to(&gateways[1]);
    let (mut events, mut pen) = at_b.open_stream(&mut server, at_b.get()).await;
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");
    let (ended, ()) = tokio::join!(client.delete().send(), async {
        let asked = server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "u1");
        asked.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    // Announced over TLS, too.
    events.ends_cleanly().await;
    assert_eq!(at_b.send(&call(1)).await.status, 404);
}

#[tokio::test]
async fn a_redis_whose_authority_is_not_trusted_is_not_used() {
    let redis = Redis::start_tls().await.unwrap();
    let stranger = Redis::start_tls().await.unwrap();
    let mut server = Scripted::start().await;
    let gateway = over_tls(&redis, &stranger, &server).await;
    assert_eq!(admin(&gateway, "/ready").await.status, 503);
    let mut client = Client::new(&gateway);
    let (refused, ()) = tokio::join!(client.initialize(), async {
        server.next().await.initialized(Some("newborn"));
        assert_eq!(server.next().await.method, "DELETE");
    });
    assert_eq!(refused.status, 503);
    client.session = Some("A".repeat(ID_CHARS).parse().unwrap());
    assert_eq!(sent(client.get()).await.status, 503);
}
