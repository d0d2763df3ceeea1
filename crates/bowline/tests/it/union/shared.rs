//! Gateways on one Redis: any of them serves any attachment, and a member is one session however many ask for it.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, UnionNames};
use bowline_testbed::answering::Gate;
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::kit::across::assert_cannot_know;
use crate::kit::client::Client;
use crate::kit::fake::{Fake, begun, client_of, config_of, hear_of, names, text, unmarked};
use crate::kit::messages::{cancel, list};
use crate::kit::stores::{call_back, command, in_redis, raw, send_away};
use crate::kit::wait::{until, until_so};

/// Two gateways on one Redis before two servers.
struct Stage {
    redis: Redis,
    a: Fake,
    b: Fake,
    gateways: Vec<Gateway>,
    /// Its attachment was opened at the first gateway.
    client: Client,
}

impl Stage {
    async fn set() -> Self {
        Self::set_with(|_| {}).await
    }

    async fn set_with(change: impl Fn(&mut Config)) -> Self {
        let redis = Redis::start().await.unwrap();
        let (a, b) = (Fake::start("a").await, Fake::start("b").await);
        let mut gateways = Vec::new();
        for _ in 0..2 {
            let mut config = config_of(&[&a, &b]);
            config.store = in_redis(&redis);
            change(&mut config);
            gateways.push(Gateway::start(config).await.unwrap());
        }
        let client = begun(&gateways[0]).await;
        Self {
            redis,
            a,
            b,
            gateways,
            client,
        }
    }

    /// The same client at the second gateway.
    fn there(&self) -> Client {
        self.client.moved_to_url(&client_of(&self.gateways[1]).url)
    }
}

async fn uses(client: &Client, tool: &str) -> Value {
    let answer = client.call("use", tool, &json!({})).await;
    unmarked(answer.messages().pop().unwrap())
}

#[tokio::test]
async fn any_gateway_serves_any_attachment_and_its_members() {
    let stage = Stage::set().await;
    let there = stage.there();
    assert_eq!(uses(&stage.client, "a__t").await["result"], text("a"));
    assert_eq!(uses(&there, "a__t").await["result"], text("a"));
    assert_eq!(uses(&there, "b__t").await["result"], text("b"));
    for client in [&stage.client, &there] {
        assert_eq!(names(&client.send(&list(1)).await), ["a__t", "b__t"]);
        assert_eq!(uses(client, "b__t").await["result"], text("b"));
    }
    for fake in [&stage.a, &stage.b] {
        assert_eq!((fake.count("initialize"), fake.live().len()), (1, 1));
    }
}

fn lists(fake: &Fake, tools: &[&str]) {
    let tools = tools.iter();
    let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    let tools: Vec<Value> = tools.collect();
    fake.result("tools/list", json!({"tools": tools}));
}

#[tokio::test]
async fn a_bare_name_means_at_any_gateway_what_the_client_was_shown() {
    let stage = Stage::set_with(|config| config.union.names = UnionNames::Bare).await;
    lists(&stage.a, &["del"]);
    lists(&stage.b, &[]);
    assert_eq!(names(&stage.client.send(&list(1)).await), ["del"]);
    lists(&stage.a, &[]);
    lists(&stage.b, &["del"]);
    // The other gateway knows the lists of now, by another client of the same caller.
    let other = begun(&stage.gateways[1]).await;
    assert_eq!(names(&other.send(&list(1)).await), ["del"]);
    assert_eq!(uses(&other, "del").await["result"], text("b"));
    let there = stage.there();
    assert_eq!(uses(&there, "del").await["result"], text("a"));
    // Until it lists again, anywhere.
    assert_eq!(names(&there.send(&list(2)).await), ["del"]);
    until_so("the first gateway hears of it", async || {
        uses(&stage.client, "del").await["result"] == text("b")
    })
    .await;
}

#[tokio::test]
async fn a_prefix_means_at_any_gateway_what_it_meant_when_the_client_was_shown_it() {
    let stage = Stage::set().await;
    assert_eq!(names(&stage.client.send(&list(1)).await), ["a__t", "b__t"]);
    let mut swapped = config_of(&[&stage.a, &stage.b]);
    swapped.store = in_redis(&stage.redis);
    for (name, prefix) in [("a", "b"), ("b", "a")] {
        swapped.servers.get_mut(name).unwrap().prefix = Some(prefix.to_owned());
    }
    // Started anew with it, and reloaded.
    let third = Gateway::start(swapped.clone()).await.unwrap();
    stage.gateways[1].reload(swapped).unwrap();
    for gateway in [&third, &stage.gateways[1]] {
        let there = stage.client.moved_to_url(&client_of(gateway).url);
        assert_eq!(uses(&there, "a__t").await["error"]["code"], -32602);
    }
    assert_eq!(stage.a.count("tools/call") + stage.b.count("tools/call"), 0);
    let there = stage.there();
    assert_eq!(names(&there.send(&list(2)).await), ["b__t", "a__t"]);
    assert_eq!(uses(&there, "a__t").await["result"], text("b"));
}

#[tokio::test]
async fn a_client_is_shown_no_bare_name_that_the_store_does_not_know() {
    let stage = Stage::set_with(|config| config.union.names = UnionNames::Bare).await;
    lists(&stage.a, &["one"]);
    lists(&stage.b, &[]);
    assert_eq!(names(&stage.client.send(&list(1)).await), ["one"]);
    send_away(&stage.redis).await;
    // What it was shown before, it can be shown again.
    assert_eq!(names(&stage.client.send(&list(2)).await), ["one"]);
    lists(&stage.b, &["two"]);
    assert_cannot_know(&stage.client.send(&list(3)).await);
    call_back(&stage.redis).await;
    until_so("it is shown", async || {
        let answer = stage.client.send(&list(4)).await;
        answer.status == 200 && names(&answer) == ["one", "two"]
    })
    .await;
}

#[tokio::test]
async fn a_member_that_two_gateways_open_at_once_is_one_session() {
    let stage = Stage::set().await;
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    stage.a.on("initialize", move |seen| {
        let result = bowline_testbed::scripted::initialize_result();
        seen.result(&result).behind(&own)
    });
    let mut calls = JoinSet::new();
    for client in [stage.client.clone(), stage.there()] {
        calls.spawn(async move { uses(&client, "a__t").await });
    }
    until("both open it", || gate.waiting() == 2).await;
    gate.open();
    for answer in calls.join_all().await {
        assert_eq!(answer["result"], text("a"), "{answer}");
    }
    stage.a.until("DELETE", 1).await;
    let live = stage.a.live();
    assert_eq!(live.len(), 1, "{live:?}");
    for client in [&stage.client, &stage.there()] {
        assert_eq!(uses(client, "a__t").await["result"], text("a"));
    }
    let calls = stage.a.asked("tools/call");
    let sessions: Vec<&str> = calls.iter().map(|it| it.header("mcp-session-id")).collect();
    assert_eq!(sessions, vec![live[0].as_str(); 4]);
    assert_eq!(
        (stage.a.count("initialize"), stage.a.count("DELETE")),
        (2, 1)
    );
}

#[tokio::test]
async fn a_cancel_reaches_the_gateway_that_has_the_request() {
    let stage = Stage::set().await;
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    stage.a.on("tools/call", move |seen| {
        seen.result(&text("late")).behind(&own)
    });
    // The other gateway knows the attachment.
    let there = stage.there();
    assert_eq!(uses(&there, "b__t").await["result"], text("b"));
    let client = stage.client.clone();
    let running =
        JoinSet::from_iter([async move { client.call("long", "a__t", &json!({})).await }]);
    stage.a.until("tools/call", 1).await;
    assert_eq!(there.send(&cancel("long")).await.status, 202);
    stage.a.until("notifications/cancelled", 1).await;
    assert_eq!(
        stage.a.params("notifications/cancelled")[0]["requestId"],
        "long"
    );
    assert_eq!(stage.b.count("notifications/cancelled"), 0);
    gate.open();
    running.join_all().await;
}

#[tokio::test]
async fn a_cancel_elsewhere_ends_the_wait_for_a_member() {
    let stage = Stage::set().await;
    let gate = Gate::default();
    gate.close();
    let own = gate.clone();
    stage.a.on("initialize", move |seen| {
        let result = bowline_testbed::scripted::initialize_result();
        seen.result(&result).behind(&own)
    });
    let there = stage.there();
    assert_eq!(uses(&there, "b__t").await["result"], text("b"));
    let client = stage.client.clone();
    let mut running =
        JoinSet::from_iter([async move { client.call("early", "a__t", &json!({})).await }]);
    until("it is being opened", || gate.waiting() == 1).await;
    assert_eq!(there.send(&cancel("early")).await.status, 202);
    let over = running.join_next().await.unwrap().unwrap();
    assert!(over.json().get("result").is_none(), "{over:?}");
    gate.open();
    assert_eq!(uses(&there, "a__t").await["result"], text("a"));
    assert_eq!(stage.a.count("tools/call"), 1);
}

#[tokio::test]
async fn the_stream_is_at_the_gateway_that_was_asked_last() {
    let stage = Stage::set().await;
    let first = stage.client.listen().await;
    assert_eq!(uses(&stage.client, "a__t").await["result"], text("a"));
    stage.a.until_listened(1).await;
    let there = stage.there();
    let mut second = there.listen().await;
    drop(first.all().await);
    stage.a.until("GET", 2).await;
    stage.a.until_listened(1).await;
    // A question that is heard at one gateway is answered at the other.
    let question = json!({"jsonrpc": "2.0", "id": 7, "method": "roots/list"});
    stage.a.emit(None, &question);
    let (_, asked) = hear_of(&mut second, "roots/list").await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"roots": []}});
    assert_eq!(stage.client.send(&answer).await.status, 202);
    stage.a.until("a response", 1).await;
    assert_eq!(stage.a.asked("a response")[0].json()["id"], 7);
    // A member that the first gateway opens is heard at the second.
    assert_eq!(uses(&stage.client, "b__t").await["result"], text("b"));
    stage.b.until_listened(1).await;
    assert_eq!(stage.b.count("GET"), 1);
}

#[tokio::test]
async fn use_at_one_gateway_keeps_members_that_only_the_other_has_used() {
    const IDLE: Duration = Duration::from_secs(2);
    let stage = Stage::set_with(|config| config.limits.session_idle = IDLE).await;
    assert_eq!(uses(&stage.client, "a__t").await["result"], text("a"));
    let there = stage.there();
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    let began = Instant::now();
    while began.elapsed() < 3 * IDLE {
        assert_eq!(there.send(&ping).await.status, 200);
        tokio::time::sleep(IDLE / 10).await;
    }
    assert_eq!(stage.a.count("DELETE"), 0);
    let answer = uses(&there, "a__t").await;
    assert_eq!(answer["result"], text("a"), "{answer}");
    assert_eq!(stage.a.count("initialize"), 1);
    stage.a.until("DELETE", 1).await;
}

#[tokio::test]
async fn what_ended_at_one_gateway_is_gone_at_the_other() {
    let stage = Stage::set().await;
    let there = stage.there();
    assert_eq!(uses(&stage.client, "a__t").await["result"], text("a"));
    assert_eq!(uses(&there, "b__t").await["result"], text("b"));
    let events = stage.client.listen().await;
    assert_eq!(there.end().await.status, 204);
    drop(events.all().await);
    until_so("it is gone", async || {
        stage.client.send(&list(1)).await.status == 404
    })
    .await;
    for fake in [&stage.a, &stage.b] {
        fake.until("DELETE", 1).await;
        assert_eq!((fake.live().len(), fake.count("DELETE")), (0, 1));
    }
    assert_eq!(there.end().await.status, 404);
}

#[tokio::test]
async fn a_log_level_that_was_set_at_one_gateway_holds_at_the_other() {
    let stage = Stage::set().await;
    let there = stage.there();
    assert_eq!(uses(&there, "a__t").await["result"], text("a"));
    let level = json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "error"}});
    assert_eq!(stage.client.send(&level).await.json()["result"], json!({}));
    assert_eq!(
        stage.a.params("logging/setLevel"),
        [json!({"level": "error"})]
    );
    assert_eq!(uses(&there, "b__t").await["result"], text("b"));
    assert_eq!(
        stage.b.params("logging/setLevel"),
        [json!({"level": "error"})]
    );
}

#[tokio::test]
async fn while_the_store_is_away_it_is_not_known_and_after_that_all_is_there() {
    let stage = Stage::set().await;
    assert_eq!(uses(&stage.client, "a__t").await["result"], text("a"));
    send_away(&stage.redis).await;
    let there = stage.there();
    // The second gateway has never seen it.
    assert_cannot_know(&there.send(&list(1)).await);
    let mut newcomer = client_of(&stage.gateways[1]);
    assert_cannot_know(&newcomer.initialize().await);
    call_back(&stage.redis).await;
    until_so("it is back", async || {
        there.send(&list(2)).await.status == 200
    })
    .await;
    assert_eq!(uses(&there, "a__t").await["result"], text("a"));
    assert_eq!(stage.a.count("initialize"), 1);
}

/// How often Redis was asked what a key has, or whether there are any.
async fn questions(redis: &Redis) -> u64 {
    let mut connection = raw(redis).await;
    let info = command(&["INFO", "commandstats"]);
    let info: String = info.query_async(&mut connection).await.unwrap();
    let counted = |name: &str| {
        let after = info.split_once(&format!("cmdstat_{name}:calls="));
        after.map_or(0, |(_, rest)| {
            rest.split(',').next().unwrap().parse().unwrap()
        })
    };
    counted("hmget") + counted("exists")
}

#[tokio::test]
async fn an_unknown_id_costs_one_question() {
    let stage = Stage::set().await;
    let mut unknown = client_of(&stage.gateways[0]);
    for id in [
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB",
    ] {
        unknown.session = Some(http::HeaderValue::from_static(id));
        let before = questions(&stage.redis).await;
        assert_eq!(unknown.send(&list(1)).await.status, 404);
        assert_eq!(questions(&stage.redis).await - before, 1);
    }
    // One that is known costs one more, and is served.
    assert_eq!(names(&stage.there().send(&list(1)).await), ["a__t", "b__t"]);
}
