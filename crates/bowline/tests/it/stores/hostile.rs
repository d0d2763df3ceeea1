//! Somebody who can read and write Redis learns nothing, moves nothing, and ends nothing by shouting.

use std::time::Duration;

use bowline::config::{Caller, CallerName, Config, KeyHash};
use bowline_testbed::redis::Redis;
use redis::aio::MultiplexedConnection;
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::kit::across::Across;
use crate::kit::client::Client;
use crate::kit::messages::call;
use crate::kit::opened::forgot;
use crate::kit::stores::{command, keys, raw};

/// A session as it lies in Redis.
type Fields = Vec<(Vec<u8>, Vec<u8>)>;

async fn fields(connection: &mut MultiplexedConnection, key: &str) -> Fields {
    let flat: redis::Value = command(&["HGETALL", key])
        .query_async(connection)
        .await
        .unwrap();
    redis::from_redis_value(flat).unwrap()
}

async fn put(connection: &mut MultiplexedConnection, key: &str, fields: &Fields) {
    let delete = command(&["DEL", key]);
    delete.exec_async(connection).await.unwrap();
    for (name, value) in fields {
        let mut set = command(&["HSET", key]);
        set.arg(name).arg(value);
        set.exec_async(connection).await.unwrap();
    }
}

/// A gateway that has never seen the session, and so has nothing but what Redis says.
async fn newcomer(across: &mut Across, client: &Client) -> Client {
    let config = across.config(crate::kit::stores::in_redis(&across.redis));
    let gateway = bowline::Gateway::start(config).await.unwrap();
    across.gateways.push(gateway);
    across.at(client, across.gateways.len() - 1)
}

fn assert_refused(answer: &crate::kit::client::Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"));
}

#[tokio::test]
async fn a_record_opens_nowhere_but_in_its_place() {
    let mut across = Across::start(1).await;
    let one = across.open().await;
    let mut connection = raw(&across.redis).await;
    let first = keys(&mut connection).await;
    let two = Client::open(&across.gateways[0], &mut across.server, "u2").await;
    let all = keys(&mut connection).await;
    let second: Vec<_> = all.iter().filter(|key| !first.contains(key)).collect();
    let (first, second) = (&first[0], second[0]);
    let (ones, twos) = (
        fields(&mut connection, first).await,
        fields(&mut connection, second).await,
    );
    // Changed places.
    put(&mut connection, first, &twos).await;
    put(&mut connection, second, &ones).await;
    for client in [&one, &two] {
        let elsewhere = newcomer(&mut across, client).await;
        assert_refused(&elsewhere.send(&call(1)).await);
    }
    // One byte.
    let record = ones.iter().position(|(name, _)| name == b"r").unwrap();
    for at in [0, 1, 9, 25, ones[record].1.len() - 1] {
        let mut changed = ones.clone();
        changed[record].1[at] ^= 1;
        put(&mut connection, first, &changed).await;
        let elsewhere = newcomer(&mut across, &one).await;
        assert_refused(&elsewhere.send(&call(1)).await);
    }
    // Another version.
    let version = ones.iter().position(|(name, _)| name == b"v").unwrap();
    let mut changed = ones.clone();
    changed[version].1 = b"2".to_vec();
    put(&mut connection, first, &changed).await;
    let elsewhere = newcomer(&mut across, &one).await;
    assert_refused(&elsewhere.send(&call(1)).await);
    // What is not a session at all.
    put(
        &mut connection,
        first,
        &vec![(b"v".to_vec(), b"x".to_vec())],
    )
    .await;
    let elsewhere = newcomer(&mut across, &one).await;
    assert_refused(&elsewhere.send(&call(1)).await);
    // As it was.
    put(&mut connection, first, &ones).await;
    let last = across.gateways.len() - 1;
    across.works_at(&one, last, "u1").await;
    across.server.finish();
}

#[tokio::test]
async fn an_older_record_is_not_taken_by_who_knows_a_newer() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    let key = keys(&mut connection).await.remove(0);
    let old = fields(&mut connection, &key).await;
    let message = call("loser");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(across.server.next().await);
        across.server.next().await.initialized(Some("u2"));
        across.server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    across.works_at(&client, 1, "u2").await;
    put(&mut connection, &key, &old).await;
    // Also when they have looked again.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for gateway in [0, 1] {
        across.works_at(&client, gateway, "u2").await;
    }
    across.server.finish();
}

/// What `docs/guides/scale-out.md` says of one that did not see the newer.
#[tokio::test]
async fn an_older_record_costs_who_knows_none_an_initialize() {
    let mut across = Across::start(1).await;
    let client = across.open().await;
    let mut connection = raw(&across.redis).await;
    let key = keys(&mut connection).await.remove(0);
    let old = fields(&mut connection, &key).await;
    let message = call("loser");
    let (answer, ()) = tokio::join!(client.send(&message), async {
        forgot(across.server.next().await);
        across.server.next().await.initialized(Some("u2"));
        across.server.next().await.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    put(&mut connection, &key, &old).await;
    let newcomer = newcomer(&mut across, &client).await;
    let (answer, ()) = tokio::join!(newcomer.send(&message), async {
        let asked = across.server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "u1");
        forgot(asked);
        let asked = across.server.next().await;
        assert_eq!(asked.rpc_method(), "initialize");
        asked.initialized(Some("u3"));
        let asked = across.server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "u3");
        asked.result(&json!({}));
    });
    assert_eq!(answer.status, 200);
    across.server.finish();
}

#[tokio::test]
async fn an_ended_session_that_is_put_back_stays_ended_where_its_end_is_remembered() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    across.works_at(&client, 1, "u1").await;
    let mut connection = raw(&across.redis).await;
    let key = keys(&mut connection).await.remove(0);
    let alive = fields(&mut connection, &key).await;
    let (ended, ()) = tokio::join!(client.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    let at_b = across.at(&client, 1);
    crate::kit::across::until_gone(&mut across, &at_b).await;
    put(&mut connection, &key, &alive).await;
    for gateway in [0, 1] {
        let at = across.at(&client, gateway);
        assert_eq!(at.send(&call(1)).await.status, 404);
    }
    across.server.finish();
}

#[tokio::test]
async fn shouting_does_nothing() {
    let mut across = Across::start(2).await;
    let client = across.open().await;
    let (mut events, mut pen) = client.open_stream(&mut across.server, client.get()).await;
    let mut connection = raw(&across.redis).await;
    let mut heard = listen(&across.redis).await;
    // What a real end sounds like, from another session.
    let other = Client::open(&across.gateways[1], &mut across.server, "u2").await;
    let (ended, ()) = tokio::join!(other.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    let real = heard.recv().await.unwrap();
    let mut forgeries = vec![Vec::new(), vec![1], vec![0; 100], b"\x01ended".to_vec()];
    for at in 0..real.len() {
        let mut changed = real.clone();
        changed[at] ^= 1;
        forgeries.push(changed);
    }
    // Said again, it is what everybody knows already.
    forgeries.push(real);
    for forged in forgeries {
        let mut publish = command(&["PUBLISH", "test:announcements"]);
        publish.arg(forged);
        publish.exec_async(&mut connection).await.unwrap();
    }
    for gateway in [0, 1] {
        across.works_at(&client, gateway, "u1").await;
    }
    pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"x/here\"}\n\n");
    assert_eq!(events.next_message().await.1["method"], "x/here");
    across.server.finish();
}

/// Hears what is announced.
async fn listen(redis: &Redis) -> tokio::sync::mpsc::UnboundedReceiver<Vec<u8>> {
    let (sender, heard) = tokio::sync::mpsc::unbounded_channel();
    let (push, mut pushes) = tokio::sync::mpsc::unbounded_channel::<redis::PushInfo>();
    let client = redis::Client::open(format!("{}?protocol=resp3", redis.url())).unwrap();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(push);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    connection.subscribe("test:announcements").await.unwrap();
    TaskTracker::new().spawn(async move {
        let _connection = connection;
        while let Some(push) = pushes.recv().await {
            if push.kind == redis::PushKind::Message
                && let Some(redis::Value::BulkString(message)) = push.data.into_iter().nth(1)
                && sender.send(message).is_err()
            {
                return;
            }
        }
    });
    heard
}

const CALLER_KEY: &str = "the-key-of-a-caller-0123456789abcdef";

fn with_caller(config: &mut Config) {
    let name: CallerName = "a-caller".parse().unwrap();
    config
        .callers
        .insert(name, Caller::with_key(KeyHash::of(CALLER_KEY.as_bytes())));
}

#[tokio::test]
async fn nothing_secret_is_in_redis_or_announced() {
    let mut across = Across::start_with(2, with_caller).await;
    let mut heard = listen(&across.redis).await;
    let mut client = Client::new(&across.gateways[0]).with_key(CALLER_KEY);
    let upstream = "upstream-session-id-0123456789";
    let cookie = "cookie-value-0123456789";
    let set_cookie = format!("SRV={cookie}; path=/");
    let (opened, ()) = tokio::join!(client.initialize(), async {
        let headers = [("mcp-session-id", upstream), ("set-cookie", &*set_cookie)];
        let asked = across.server.next().await;
        asked.result_with(&headers, &bowline_testbed::scripted::initialize_result());
    });
    assert_eq!(opened.status, 200);
    across.works_at(&client, 1, upstream).await;
    // Nobody else's, at a gateway that has just read it either.
    let mut stranger = newcomer(&mut across, &client).await;
    stranger.key = None;
    assert_eq!(stranger.send(&call(1)).await.status, 404);
    let id = client.session.clone().unwrap();
    let id = id.to_str().unwrap();
    let mut connection = raw(&across.redis).await;
    let mut dump = Vec::new();
    let all: Vec<String> = command(&["KEYS", "*"])
        .query_async(&mut connection)
        .await
        .unwrap();
    assert!(all.len() >= 2, "a session and the gateways: {all:?}");
    for key in &all {
        dump.push(key.clone().into_bytes());
        if key == "test:sessions" {
            let counted = command(&["ZRANGE", key, "0", "-1", "WITHSCORES"]);
            let counted: Vec<Vec<u8>> = counted.query_async(&mut connection).await.unwrap();
            dump.extend(counted);
            continue;
        }
        let kind: String = command(&["TYPE", key])
            .query_async(&mut connection)
            .await
            .unwrap();
        if kind == "string" {
            let get = command(&["GET", key]);
            dump.push(get.query_async(&mut connection).await.unwrap());
            continue;
        }
        for (name, value) in fields(&mut connection, key).await {
            dump.extend([name, value]);
        }
    }
    let (ended, ()) = tokio::join!(client.delete().send(), async {
        across.server.next().await.reply(204, &[], "");
    });
    assert_eq!(ended.unwrap().status(), 204);
    dump.push(heard.recv().await.unwrap());
    while let Ok(more) = heard.try_recv() {
        dump.push(more);
    }
    let dump = dump.join(&b'\n');
    let contains = |secret: &[u8]| dump.windows(secret.len()).any(|window| window == secret);
    assert!(contains(b"test:{s:"), "the dump has something in it");
    for secret in [
        id,
        upstream,
        cookie,
        CALLER_KEY,
        "a-caller",
        "SRV",
        "protocolVersion",
    ] {
        assert!(!contains(secret.as_bytes()), "{secret} is in clear");
    }
}
