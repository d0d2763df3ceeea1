//! While the store cannot be asked: what is known goes on for a while, nothing is invented, and
//! nothing that ended comes back.

use std::time::Duration;

use bowline::config::{OnUnreachable, Password, Store, StoreKind};
use bowline::{Gateway, StartError};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::across::Across;
use crate::client::{Answer, Client, call, config, read};
use crate::kept::in_redis;
use crate::log::Log;

/// A connection of the test's own.
pub(crate) async fn raw(redis: &Redis) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(redis.url()).unwrap();
    // It waits for as long as a Redis that a test makes slow takes.
    let config =
        redis::AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    connected.await.unwrap()
}

/// Makes Redis refuse everything, without losing anything.
pub(crate) async fn send_away(redis: &Redis) {
    let mut connection = raw(redis).await;
    for words in [
        &["CONFIG", "SET", "replica-serve-stale-data", "no"][..],
        &["REPLICAOF", "127.0.0.1", "1"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
}

async fn call_back(redis: &Redis) {
    let mut connection = raw(redis).await;
    let back = command(&["REPLICAOF", "NO", "ONE"]);
    back.exec_async(&mut connection).await.unwrap();
}

pub(crate) fn command(words: &[&str]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    words.iter().for_each(|word| {
        command.arg(*word);
    });
    command
}

/// Asserts the answer of a gateway that cannot know.
fn assert_cannot_know(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert!(!answer.headers.contains_key("mcp-session-id"));
}

pub(crate) async fn admin(gateway: &Gateway, path: &str) -> Answer {
    let url = format!("http://{}{path}", gateway.admin().unwrap());
    let asked = Client::at(url).request(reqwest::Method::GET);
    read(asked.send().await.unwrap()).await
}

pub(crate) async fn health(gateway: &Gateway) -> Value {
    admin(gateway, "/health").await.json()
}

/// Waits until this is the status of `/ready`.
async fn until_ready_is(gateway: &Gateway, status: u16) {
    let waiting = async {
        while admin(gateway, "/ready").await.status != status {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "/ready never was {status}");
}

/// Waits until the gateway knows that its store is away.
async fn until_away(gateway: &Gateway) {
    let waiting = async {
        while health(gateway).await["store"]["status"] != "unavailable" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "never noticed");
}

/// Sends a call again and again until it gets this status; only this and `meanwhile` may come.
/// Whoever reaches the server is answered.
async fn until_status(across: &mut Across, client: &Client, wanted: u16, meanwhile: u16) {
    let began = Instant::now();
    loop {
        let message = call("again");
        let sent = client.send(&message);
        tokio::pin!(sent);
        let answer = loop {
            tokio::select! {
                answer = &mut sent => break answer,
                asked = across.server.next() => asked.result(&json!({})),
            }
        };
        if answer.status == wanted {
            return;
        }
        assert_eq!(answer.status, meanwhile, "{answer:?}");
        if answer.status == 503 {
            assert_cannot_know(&answer);
        }
        assert!(began.elapsed() < PATIENCE, "never {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a gateway has heard of a session's end.
pub(crate) async fn until_gone(across: &mut Across, client: &Client) {
    until_status(across, client, 404, 200).await;
}

/// With `/ready` to look at, and time enough to notice that the store is away.
pub(crate) fn with_admin(config: &mut bowline::config::Config) {
    config.admin = Some("127.0.0.1:0".parse().unwrap());
    config.store.grace = Duration::from_secs(6);
}

/// What a client meets while Redis is away: A knows the session, B does not.
async fn is_away(across: &mut Across, client: &Client) {
    let began = Instant::now();
    across.works_at(client, 0, "u1").await;
    let first = began.elapsed();
    assert!(first < Duration::from_secs(2), "{first:?}");
    until_away(&across.gateways[0]).await;
    // Known to be away, it is not waited for.
    let began = Instant::now();
    across.works_at(client, 0, "u1").await;
    let second = began.elapsed();
    assert!(second < Duration::from_millis(300), "{second:?}");
    // Where nobody knows the session nobody knows whether there is one.
    let at_b = across.at(client, 1);
    assert_cannot_know(&at_b.send(&call(1)).await);
    assert_cannot_know(&read(at_b.get().send().await.unwrap()).await);
    assert_cannot_know(&read(at_b.delete().send().await.unwrap()).await);
    // Nobody can promise to end it everywhere.
    assert_cannot_know(&read(client.delete().send().await.unwrap()).await);
    // A session that could not be kept is not given to anybody.
    let mut newcomer = across.at(client, 1);
    newcomer.session = None;
    let (refused, ()) = tokio::join!(newcomer.initialize(), async {
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.initialized(Some("newborn"));
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        assert_eq!(asked.header("mcp-session-id"), "newborn");
        asked.reply(204, &[], "");
    });
    assert_cannot_know(&refused);
    // The near cache is not believed for ever.
    until_status(across, client, 503, 200).await;
}

#[tokio::test]
async fn a_redis_that_refuses_loses_nothing() {
    let mut across = Across::start_with(2, with_admin).await;
    let client = across.open().await;
    send_away(&across.redis).await;
    is_away(&mut across, &client).await;
    call_back(&across.redis).await;
    until_status(&mut across, &client, 200, 503).await;
    // The DELETE that was refused has not ended it, here or elsewhere.
    across.works_at(&client, 1, "u1").await;
    until_ready_is(&across.gateways[0], 200).await;
}

#[tokio::test]
async fn the_grace_begins_when_the_store_goes_not_when_the_session_was_last_used() {
    let mut across = Across::start_with(1, |config| {
        with_admin(config);
        config.store.grace = Duration::from_secs(5);
    })
    .await;
    let client = across.open().await;
    // Seen once since the gateway hears of changes; then nobody uses it.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    across.works_at(&client, 0, "u1").await;
    tokio::time::sleep(Duration::from_secs(6)).await;
    send_away(&across.redis).await;
    across.works_at(&client, 0, "u1").await;
    until_status(&mut across, &client, 503, 200).await;
}

#[tokio::test]
async fn a_redis_that_hangs_is_waited_for_and_then_not() {
    let mut across = Across::start_with(2, with_admin).await;
    let client = across.open().await;
    across.redis.pause().await.unwrap();
    is_away(&mut across, &client).await;
    across.redis.resume().await.unwrap();
    until_ready_is(&across.gateways[1], 200).await;
    // The DELETE that got no answer may have been carried out: it is the same everywhere.
    let statuses = async |across: &mut Across, gateway| {
        let at = across.at(&client, gateway);
        let message = call("after");
        let sent = at.send(&message);
        tokio::pin!(sent);
        loop {
            tokio::select! {
                answer = &mut sent => break answer.status.as_u16(),
                asked = across.server.next() => asked.result(&json!({})),
            }
        }
    };
    let one = statuses(&mut across, 1).await;
    assert!([200, 404].contains(&one), "{one}");
    until_status(&mut across, &client, one, 503).await;
}

#[tokio::test]
async fn a_gateway_is_ready_for_as_long_as_it_serves_and_says_what_is_wrong() {
    // Longer than it takes to notice.
    let grace = Duration::from_secs(8);
    let mut across = Across::start_with(1, |config| {
        with_admin(config);
        config.store.grace = grace;
    })
    .await;
    let client = across.open().await;
    let gateway = &across.gateways[0];
    let ready = admin(gateway, "/ready").await;
    assert_eq!(
        (ready.status.as_u16(), ready.json()),
        (200, json!({"status": "ready"}))
    );
    assert_eq!(health(gateway).await["status"], "ok");
    let began = Instant::now();
    across.redis.pause().await.unwrap();
    until_away(gateway).await;
    let ready = admin(gateway, "/ready").await;
    assert_eq!(
        (ready.status.as_u16(), &ready.json()["status"]),
        (200, &json!("ready"))
    );
    let degraded = ready.json()["degraded"].as_str().unwrap().to_owned();
    assert!(
        degraded.contains("sessions that are at hand go on"),
        "{degraded}"
    );
    let told = health(gateway).await;
    assert_eq!(told["status"], "degraded");
    assert!(told["store"]["reason"].is_string(), "{told}");
    across.works_at(&client, 0, "u1").await;
    // Not longer than the configuration says, counted from the last answer.
    let gateway = &across.gateways[0];
    until_ready_is(gateway, 503).await;
    let lasted = began.elapsed();
    assert!(lasted < grace + Duration::from_millis(700), "{lasted:?}");
    let ready = admin(gateway, "/ready").await.json();
    assert_eq!(ready["status"], "not ready");
    assert!(
        ready["reason"].as_str().unwrap().contains("grace"),
        "{ready}"
    );
    assert_cannot_know(&client.send(&call(1)).await);
    across.redis.resume().await.unwrap();
    until_ready_is(&across.gateways[0], 200).await;
    assert_eq!(health(&across.gateways[0]).await["status"], "ok");
    across.works_at(&client, 0, "u1").await;
}

#[tokio::test]
async fn an_end_that_was_announced_is_an_end_also_while_the_store_is_away() {
    let mut across = Across::start_with(2, with_admin).await;
    let (client, other) = (
        across.open().await,
        Client::open(&across.gateways[0], &mut across.server, "u2").await,
    );
    for known in [&client, &other] {
        let upstream = if std::ptr::eq(known, &client) {
            "u1"
        } else {
            "u2"
        };
        across.works_at(known, 1, upstream).await;
    }
    let at_b = across.at(&client, 1);
    let (ended, ()) = tokio::join!(at_b.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    until_gone(&mut across, &client).await;
    across.redis.pause().await.unwrap();
    until_away(&across.gateways[0]).await;
    // The grace is for the other session, not for this one.
    assert_eq!(client.send(&call(1)).await.status, 404);
    across.works_at(&other, 0, "u2").await;
    until_status(&mut across, &other, 503, 200).await;
    assert_eq!(client.send(&call(1)).await.status, 404);
}

#[tokio::test]
async fn a_gateway_that_hears_nothing_believes_what_it_saw_and_no_longer() {
    let grace = Duration::from_secs(3);
    let mut across = Across::start_with(1, |config| {
        with_admin(config);
        config.store.grace = grace;
    })
    .await;
    let client = across.open().await;
    // Seen once since the gateway hears of changes; then nobody uses it.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    across.works_at(&client, 0, "u1").await;
    let mut connection = raw(&across.redis).await;
    // From now on it may ask, but not listen.
    for words in [
        &["ACL", "SETUSER", "default", "-subscribe"][..],
        &["CLIENT", "KILL", "TYPE", "pubsub"],
    ] {
        command(words).exec_async(&mut connection).await.unwrap();
    }
    tokio::time::sleep(grace).await;
    // So it cannot have heard of this, although Redis answers it now.
    end_behind(&across.redis).await;
    Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.redis.pause().await.unwrap();
    until_away(&across.gateways[0]).await;
    assert_cannot_know(&client.send(&call(1)).await);
    across.server.finish();
}

#[tokio::test]
async fn a_redis_that_comes_back_empty_is_told_what_a_gateway_knows() {
    let mut across = Across::start_with(2, with_admin).await;
    let client = across.open().await;
    let ended = Client::open(&across.gateways[0], &mut across.server, "u9").await;
    let (deleted, ()) = tokio::join!(ended.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(deleted.unwrap().status(), 204);
    across.redis.kill().await.unwrap();
    is_away(&mut across, &client).await;
    across.redis.restart_empty().await.unwrap();
    // Where nobody knows it, there is none; where it is known, it is written anew for all.
    let at_b = across.at(&client, 1);
    until_status(&mut across, &at_b, 404, 503).await;
    until_status(&mut across, &client, 200, 503).await;
    across.works_at(&client, 1, "u1").await;
    // What has ended stays so.
    assert_eq!(ended.send(&call(1)).await.status, 404);
    // New sessions are kept again.
    let again = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.works_at(&again, 1, "u2").await;
}

#[tokio::test]
async fn a_session_that_ended_elsewhere_is_not_written_back() {
    let mut across = Across::start_with(2, with_admin).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    // A hears nothing of the end, and goes on from its near cache: it sets a level, it gets a cookie.
    send_away(&across.redis).await;
    until_away(&across.gateways[0]).await;
    let level = json!({"jsonrpc": "2.0", "id": 5, "method": "logging/setLevel", "params": {"level": "debug"}});
    let set = client.send_to(&mut across.server, &level, |asked| {
        asked.result_with(&[("set-cookie", "SRV=late; path=/")], &json!({}));
    });
    assert_eq!(set.await.status, 200);
    call_back(&across.redis).await;
    end_behind(&across.redis).await;
    until_status(&mut across, &client, 404, 200).await;
    let at_b = across.at(&client, 1);
    until_status(&mut across, &at_b, 404, 200).await;
    let mut connection = raw(&across.redis).await;
    for key in keys(&mut connection).await {
        let fields: Vec<String> = command(&["HKEYS", &key])
            .query_async(&mut connection)
            .await
            .unwrap();
        assert_eq!(fields, ["e"], "{key}");
    }
}

/// The keys of sessions.
pub(crate) async fn keys(connection: &mut redis::aio::MultiplexedConnection) -> Vec<String> {
    let mut keys: Vec<String> = command(&["KEYS", "test:{*"])
        .query_async(connection)
        .await
        .unwrap();
    keys.sort();
    keys
}

/// Ends every session, as another gateway does whose announcement is lost.
async fn end_behind(redis: &Redis) {
    let mut connection = raw(redis).await;
    for key in keys(&mut connection).await {
        for words in [&["DEL", &*key][..], &["HSET", &*key, "e", "1"]] {
            command(words).exec_async(&mut connection).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_slow_redis_is_only_slow() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    // Everything takes a fifth of a second for a while: less than the timeout.
    let slowing = TaskTracker::new().spawn(async move {
        for _ in 0..8 {
            let busy = command(&["DEBUG", "SLEEP", "0.2"]);
            busy.exec_async(&mut connection).await.unwrap();
        }
    });
    for round in 0..4 {
        across.works_at(&client, round % 2, "u1").await;
    }
    let other = Client::open(&across.gateways[1], &mut across.server, "u2").await;
    across.works_at(&other, 0, "u2").await;
    slowing.await.unwrap();
}

fn on_start(redis: &Redis, on_unreachable_start: OnUnreachable) -> Store {
    let mut store = in_redis(redis);
    if let StoreKind::Redis(redis) = &mut store.kind {
        redis.on_unreachable_start = on_unreachable_start;
    }
    store
}

#[tokio::test]
async fn a_gateway_starts_without_its_redis_and_is_ready_with_it() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.store = on_start(&redis, OnUnreachable::Wait);
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let ready = admin(&gateway, "/ready").await;
    assert_eq!(ready.status, 503);
    let reason = ready.json()["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("since the start"), "{reason}");
    assert_eq!(health(&gateway).await["store"]["status"], "unavailable");
    redis.restart_empty().await.unwrap();
    until_ready_is(&gateway, 200).await;
    Client::open(&gateway, &mut server, "u1").await;
}

#[tokio::test]
async fn a_gateway_that_is_to_give_up_does() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().await.unwrap();
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = on_start(&redis, OnUnreachable::Exit);
    let started = Gateway::start(config).await;
    assert!(
        matches!(started, Err(StartError::Store { .. })),
        "{started:?}"
    );
}

/// Opens a session that cannot be kept; the server's own is ended again.
async fn is_not_opened(across: &mut Across, gateway: usize) -> Answer {
    let mut newcomer = Client::new(&across.gateways[gateway]);
    let (refused, ()) = tokio::join!(newcomer.initialize(), async {
        across.server.next().await.initialized(Some("newborn"));
        let asked = across.server.next().await;
        assert_eq!(asked.method, "DELETE");
        asked.reply(204, &[], "");
    });
    assert_cannot_know(&refused);
    refused
}

#[tokio::test]
async fn a_full_redis_is_read_and_takes_no_new_sessions() {
    let log = Log::default();
    let _kept = log.keep();
    let mut across = Across::start_with(3, |config| {
        with_admin(config);
        config.store.grace = Duration::from_millis(100);
    })
    .await;
    let client = across.open().await;
    let other = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    across.works_at(&client, 1, "u1").await;
    let mut connection = raw(&across.redis).await;
    // Less than Redis itself takes.
    let full = command(&["CONFIG", "SET", "maxmemory", "1mb"]);
    full.exec_async(&mut connection).await.unwrap();
    let refused = is_not_opened(&mut across, 0).await;
    let error = &refused.json()["error"];
    assert_eq!(error["data"]["reason"], "store_refused", "{error}");
    assert!(
        error["message"].as_str().unwrap().contains("no room"),
        "{error}"
    );
    // Far beyond the grace, what is at hand is looked at again, and what is not is read.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for gateway in [0, 1, 2] {
        across.works_at(&client, gateway, "u1").await;
    }
    let gateway = &across.gateways[0];
    let ready = admin(gateway, "/ready").await;
    assert_eq!(ready.status, 200, "{ready:?}");
    assert!(
        ready.json()["degraded"]
            .as_str()
            .unwrap()
            .contains("no room"),
        "{ready:?}"
    );
    let told = health(gateway).await;
    assert_eq!(
        (&told["status"], &told["store"]["status"]),
        (&json!("degraded"), &json!("refusing"))
    );
    // An end makes room.
    let (ended, ()) = tokio::join!(other.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    assert_eq!(other.send(&call(1)).await.status, 404);
    assert!(
        log.contains("OOM") && log.contains("maxmemory"),
        "the reason and what to do"
    );
    assert!(!log.contains("does not answer"), "it does answer");

    let room = command(&["CONFIG", "SET", "maxmemory", "0"]);
    room.exec_async(&mut connection).await.unwrap();
    let waiting = async {
        while health(&across.gateways[0]).await["store"]["status"] != "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok());
    Client::open(&across.gateways[0], &mut across.server, "u3").await;
}

#[tokio::test]
async fn a_redis_that_became_a_replica_is_read_and_its_sessions_do_not_end() {
    let mut across = Across::start_with(2, with_admin).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    // Of a primary that is gone; its own data it shows all the same.
    let demoted = command(&["REPLICAOF", "127.0.0.1", "1"]);
    demoted.exec_async(&mut connection).await.unwrap();
    let refused = is_not_opened(&mut across, 0).await;
    assert!(refused.text.contains("takes no writes"), "{refused:?}");
    let told = health(&across.gateways[0]).await;
    assert_eq!(told["store"]["status"], "refusing", "{told}");
    for gateway in [0, 1] {
        across.works_at(&client, gateway, "u1").await;
    }
    // Nobody can promise to end it everywhere.
    assert_cannot_know(&read(client.delete().send().await.unwrap()).await);
    call_back(&across.redis).await;
    across.works_at(&client, 1, "u1").await;
}

#[tokio::test]
async fn a_wrong_password_is_told_with_what_to_do_and_not_shown() {
    let log = Log::default();
    let _kept = log.keep();
    let redis = Redis::start_with(&["--requirepass", "right-password"])
        .await
        .unwrap();
    let mut config = config(&[("s", "http://127.0.0.1:9/mcp")]);
    config.store = in_redis(&redis);
    if let StoreKind::Redis(redis) = &mut config.store.kind {
        redis.password = Some(Password::Written("wrong-password".to_owned()));
    }
    with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let ready = admin(&gateway, "/ready").await;
    assert_eq!(ready.status, 503);
    assert!(
        ready.text.contains("does not let this gateway in"),
        "{ready:?}"
    );
    assert!(log.contains("correct `user` and `password` in `[store]`"));
    assert!(!log.contains("wrong-password") && !ready.text.contains("wrong-password"));
    // It is let in as soon as Redis knows it.
    let client = redis::Client::open(redis.url().replace("//", "//:right-password@")).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let known = command(&["CONFIG", "SET", "requirepass", "wrong-password"]);
    known.exec_async(&mut connection).await.unwrap();
    let waiting = async {
        while health(&gateway).await["store"]["status"] != "ok" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok());
}
