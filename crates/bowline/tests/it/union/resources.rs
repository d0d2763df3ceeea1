//! Resources are known by URIs, which say nothing of servers: they are read where they are listed, and else where they
//! are.

use std::time::Duration;

use bowline_testbed::answering::Gate;
use bowline_testbed::counting::{Counting, Tally};
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::fake::{Fake, config_of, refusal, united, united_with, unmarked};
use crate::kit::messages::request;

async fn read(client: &Client, uri: &str) -> Value {
    let message = request("read", "resources/read", json!({"uri": uri}));
    client.send(&message).await.messages().pop().unwrap()
}

/// Reads of this URI, and no other, are answered with the server's name.
fn has_resource(fake: &Fake, uri: &'static str) {
    let name = fake.name;
    fake.on("resources/read", move |seen| {
        match seen.json()["params"]["uri"] == uri {
            true => seen.result(&json!({"contents": [{"uri": uri, "text": name}]})),
            false => refusal(seen, -32002, &format!("{name} has no such resource")),
        }
    });
}

fn lists_resource(fake: &Fake, uri: &str) {
    let resources = json!({"resources": [{"uri": uri, "name": "r"}]});
    fake.result("resources/list", resources);
}

#[tokio::test]
async fn a_resource_is_read_where_it_is_listed_and_else_where_it_is() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    has_resource(&a, "x:a");
    has_resource(&b, "x:b");
    lists_resource(&b, "x:b");
    let (_gateway, client) = united(&[&a, &b]).await;
    // Nothing is listed yet: one after the other.
    assert_eq!(
        read(&client, "x:b").await["result"]["contents"][0]["text"],
        "b"
    );
    assert_eq!(
        (a.count("resources/read"), b.count("resources/read")),
        (1, 1)
    );
    // The second time it is known.
    assert_eq!(
        read(&client, "x:b").await["result"]["contents"][0]["text"],
        "b"
    );
    assert_eq!(
        (a.count("resources/read"), b.count("resources/read")),
        (1, 2)
    );
    assert_eq!(
        read(&client, "x:a").await["result"]["contents"][0]["text"],
        "a"
    );
    assert_eq!(
        (a.count("resources/read"), b.count("resources/read")),
        (2, 2)
    );
    let refused = read(&client, "x:none").await;
    assert_eq!(refused["error"]["code"], -32002, "{refused}");
    assert_eq!(refused["error"]["message"], "a has no such resource");
    assert_eq!(refused["id"], "read");
    // Another attachment, which has listed them.
    let mut other = client.clone();
    assert_eq!(other.begin().await.status, 200);
    let all = request(1, "resources/list", json!({}));
    let listed = other.send(&all).await.json();
    assert_eq!(
        listed["result"]["resources"],
        json!([{"uri": "x:b", "name": "r"}])
    );
    assert_eq!(
        read(&other, "x:b").await["result"]["contents"][0]["text"],
        "b"
    );
    assert_eq!(
        (a.count("resources/read"), b.count("resources/read")),
        (3, 4)
    );
}

#[tokio::test]
async fn a_resource_that_two_servers_list_is_the_first_ones() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    for fake in [&a, &b] {
        has_resource(fake, "x:both");
        lists_resource(fake, "x:both");
    }
    let (_gateway, client) = united(&[&a, &b]).await;
    let listed = client.send(&request(1, "resources/list", json!({}))).await;
    assert_eq!(
        listed.json()["result"]["resources"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    for _ in 0..2 {
        assert_eq!(
            read(&client, "x:both").await["result"]["contents"][0]["text"],
            "a"
        );
    }
    assert_eq!(b.count("resources/read"), 0);
}

#[tokio::test]
async fn that_nobody_has_a_resource_is_not_said_while_one_cannot_be_asked() {
    let a = Fake::start("a").await;
    has_resource(&a, "x:a");
    let dead = Counting::start("c", &Tally::default()).await.unwrap();
    dead.die().await;
    let mut config = config_of(&[&a]);
    let mut server = bowline::config::Server::from_url(&dead.url()).unwrap();
    server.recovery.budget = Duration::from_secs(1);
    config.servers.insert("c".parse().unwrap(), server);
    let (_gateway, client) = united_with(config).await;
    assert_eq!(
        read(&client, "x:a").await["result"]["contents"][0]["text"],
        "a"
    );
    let unknown = read(&client, "x:elsewhere").await;
    assert_eq!(unknown["error"]["code"], -31002, "{unknown}");
    assert_eq!(unknown["error"]["data"]["server"], "c");
}

#[tokio::test]
async fn a_subscription_goes_where_the_read_succeeded() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    has_resource(&a, "x:a");
    has_resource(&b, "x:b");
    let (_gateway, client) = united(&[&a, &b]).await;
    assert_eq!(
        read(&client, "x:b").await["result"]["contents"][0]["text"],
        "b"
    );
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        let answer = client
            .send(&request(1, method, json!({"uri": "x:b"})))
            .await;
        assert_eq!(
            unmarked(answer.json())["result"],
            json!({}),
            "{}",
            answer.text
        );
        assert_eq!((a.count(method), b.count(method)), (0, 1), "{method}");
    }
}

#[tokio::test]
async fn a_server_that_answers_late_is_waited_for_while_the_others_are_asked() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    let gate = Gate::default();
    gate.close();
    let held = gate.clone();
    a.on("resources/read", move |seen| {
        let contents = json!({"contents": [{"uri": "x:1", "text": "here"}]});
        seen.result(&contents).behind(&held)
    });
    b.on("resources/read", |seen| refusal(seen, -32002, "not found"));
    let mut config = config_of(&[&a, &b]);
    for server in config.servers.values_mut() {
        server.list_timeout = Duration::from_millis(100);
    }
    let (_gateway, client) = united_with(config).await;
    let read =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let opening = async {
        b.until("resources/read", 1).await;
        gate.open();
    };
    let (answer, ()) = tokio::join!(client.send(&read), opening);
    assert_eq!(
        answer.json()["result"]["contents"][0]["text"],
        "here",
        "{answer:?}"
    );
    assert_eq!(
        (a.count("resources/read"), b.count("resources/read")),
        (1, 1)
    );
}
