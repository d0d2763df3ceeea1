//! What a caller may not use is not in its union, and what is a caller's own is nobody else's.

use std::collections::BTreeMap;
use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, Config, KeyHash, ToolFilter};
use bowline_testbed::answering::Said;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::fake::{Fake, client_of, config_of, missing, names, text, united_with, unmarked};
use crate::kit::gateway::{admin, with_admin};
use crate::kit::messages::{list, request};

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

/// A gateway with these callers, and a client of each, whose attachment is open.
async fn started(config: Config, keys: &[&'static str]) -> (Gateway, Vec<Client>) {
    let gateway = Gateway::start(config).await.unwrap();
    let mut clients = Vec::new();
    for key in keys {
        let mut client = client_of(&gateway).with_key(key);
        assert_eq!(client.begin().await.status, 200);
        clients.push(client);
    }
    (gateway, clients)
}

#[tokio::test]
async fn two_callers_see_different_servers_of_one_union() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    for fake in [&a, &b] {
        let name = fake.name;
        fake.on("resources/read", move |seen| {
            seen.result(&json!({"contents": [{"uri": "x:", "text": name}]}))
        });
    }
    let mut config = config_of(&[&a, &b]);
    config.callers = callers(&[("ann", None), ("bob", Some(&["b"]))]);
    let (_gateway, clients) = started(config, &["k-ann", "k-bob"]).await;
    let [ann, bob] = &clients[..] else {
        panic!("two clients");
    };
    let answer = bob.send(&list(1)).await;
    assert_eq!(
        (names(&answer), missing(&answer)),
        (vec!["b__t".to_owned()], json!(null))
    );
    let refused = bob.call(2, "a__t", &json!({})).await;
    let unknown = bob.call(2, "c__t", &json!({})).await;
    assert_eq!(refused.code(), -32602, "{}", refused.text);
    assert_eq!(refused.text.replace("a__t", "c__t"), unknown.text);
    let read = request(3, "resources/read", json!({"uri": "x:"}));
    assert_eq!(
        bob.send(&read).await.json()["result"]["contents"][0]["text"],
        "b"
    );
    assert_eq!(a.count("initialize"), 0);
    assert_eq!(names(&ann.send(&list(1)).await), ["a__t", "b__t"]);
    assert_eq!(
        ann.send(&read).await.json()["result"]["contents"][0]["text"],
        "a"
    );
}

#[tokio::test]
async fn a_reload_takes_a_server_from_a_caller_and_its_attachment_goes_on() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.callers = callers(&[("bob", None)]);
    let (gateway, clients) = started(config.clone(), &["k-bob"]).await;
    assert_eq!(names(&clients[0].send(&list(1)).await), ["a__t", "b__t"]);
    config.callers = callers(&[("bob", Some(&["b"]))]);
    gateway.reload(config).unwrap();
    assert_eq!(names(&clients[0].send(&list(2)).await), ["b__t"]);
    let calls = a.count("tools/call");
    assert_eq!(clients[0].call(3, "a__t", &json!({})).await.code(), -32602);
    assert_eq!(a.count("tools/call"), calls);
    let answer = clients[0].call(4, "b__t", &json!({})).await;
    assert_eq!(unmarked(answer.json())["result"], text("b"));
}

#[tokio::test]
async fn an_attachment_is_its_callers_alone() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.callers = callers(&[("ann", None), ("bob", None)]);
    let (gateway, clients) = started(config, &["k-ann", "k-bob"]).await;
    assert_eq!(names(&clients[0].send(&list(1)).await).len(), 2);
    let mut thief = clients[1].clone();
    thief.session.clone_from(&clients[0].session);
    // At a server's own path, it is nobody's.
    let routed = format!("http://{}/mcp/a", gateway.listen());
    let astray = clients[0].moved_to_url(&routed);
    for client in [&thief, &astray] {
        for request in [client.post(&list(2)), client.get(), client.delete()] {
            let answer = sent(request).await;
            assert_eq!(answer.status, 404, "{answer:?}");
        }
    }
    assert_eq!(names(&clients[0].send(&list(3)).await).len(), 2);
    assert_eq!((a.count("DELETE"), a.count("initialize")), (0, 1));
}

#[tokio::test]
async fn what_one_caller_was_told_is_not_served_to_another_as_stale() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.callers = callers(&[("ann", None), ("bob", None)]);
    config.servers.get_mut("b").unwrap().recovery.budget = Duration::from_secs(1);
    let (_gateway, clients) = started(config, &["k-ann", "k-bob"]).await;
    assert_eq!(names(&clients[0].send(&list(1)).await), ["a__t", "b__t"]);
    b.on("tools/list", |_| Said::status(500));
    let stale = clients[0].send(&list(2)).await;
    assert_eq!(names(&stale), ["a__t", "b__t"]);
    assert_eq!(missing(&stale)["b"]["state"], "stale");
    let absent = clients[1].send(&list(2)).await;
    assert_eq!(names(&absent), ["a__t"]);
    assert_eq!(missing(&absent)["b"]["state"], "absent");
}

#[tokio::test]
async fn tools_that_the_operator_does_not_allow_are_neither_listed_nor_called() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let own = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let tools = ["read_x", "read_secret", "write"].map(own);
    a.result("tools/list", json!({"tools": tools}));
    let mut config = config_of(&[&a, &b]);
    config.servers.get_mut("a").unwrap().tools = Some(ToolFilter {
        allow: Some(vec!["read_*".to_owned()]),
        deny: vec!["*secret".to_owned()],
    });
    let (_gateway, client) = united_with(config).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__read_x", "b__t"]);
    for refused in ["a__read_secret", "a__write"] {
        let answer = client.call(2, refused, &json!({})).await;
        assert_eq!(answer.code(), -32602, "{}", answer.text);
    }
    assert_eq!(a.count("tools/call"), 0);
    let answer = client.call(3, "a__read_x", &json!({})).await;
    assert_eq!(unmarked(answer.json())["result"], text("a"));
}

#[tokio::test]
async fn members_count_towards_the_limit_and_a_refused_one_is_absent_with_its_reason() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let mut config = config_of(&[&a, &b]);
    config.limits.sessions = 3;
    with_admin(&mut config);
    let (gateway, client) = united_with(config).await;
    assert_eq!(client.call(1, "a__t", &json!({})).await.status, 200);
    let mut second = client_of(&gateway);
    assert_eq!(second.begin().await.status, 200);
    let answer = second.send(&list(2)).await;
    let told = missing(&answer);
    assert_eq!(names(&answer), Vec::<String>::new(), "{told}");
    for server in ["a", "b"] {
        assert_eq!(told[server]["state"], "absent", "{told}");
        assert_eq!(told[server]["reason"], "too_many_sessions", "{told}");
    }
    let shown = admin(&gateway, "/health").await;
    assert!(shown.text.contains("too_many_sessions"), "{}", shown.text);
    assert_eq!((a.live().len(), b.live().len()), (1, 0));
    // What has ended makes room.
    assert_eq!(client.end().await.status, 204);
    a.until("DELETE", 1).await;
    let answer = second.send(&list(3)).await;
    assert_eq!((names(&answer).len(), missing(&answer)), (2, json!(null)));
}
