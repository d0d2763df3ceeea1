//! What a union remembers of its servers is forgotten when it must be: after a sign-out, a reload, and at another URL.

use bowline::config::{Flow, KeyHash, ToolFilter};
use bowline_testbed::answering::Seen;
use serde_json::{Value, json};

use crate::kit::asking::{API_TOKEN, oauth};
use crate::kit::browser::browse;
use crate::kit::client::Client;
use crate::kit::fake::{
    Fake, begun, client_of, config_of, missing, names, refusal, text, united_with, unmarked,
};
use crate::kit::messages::{call, list};
use crate::kit::protected::Protected;
use crate::kit::wait::until_so;

fn tools(names: &[&str]) -> Value {
    let tools = names.iter();
    let tools = tools.map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    json!({"tools": tools.collect::<Vec<_>>()})
}

fn away(seen: &Seen) -> bowline_testbed::answering::Said {
    refusal(seen, -32603, "away")
}

#[tokio::test]
async fn an_accounts_tools_and_instructions_are_gone_after_its_sign_out() {
    let (a, server) = (Fake::start("a").await, Protected::alone().await);
    server.words.lock().lists = true;
    let mut config = config_of(&[&a]);
    config.api_token = Some(KeyHash::of(API_TOKEN.as_bytes()));
    let mut signed = bowline::config::Server::from_url(&server.url()).unwrap();
    signed.oauth = Some(oauth(Flow::Managed));
    config.servers.insert("s".parse().unwrap(), signed);
    let (gateway, client) = united_with(config).await;
    let mut call = call(1);
    call["params"]["name"] = "s__sign_in".into();
    let said = client.send(&call).await.json().to_string();
    let start = said.find("http://").expect(&said);
    let link = said[start..].split([' ', '\\', '"']).next().unwrap();
    bowline_testbed::leaks::note_url(link);
    assert_eq!(browse(&gateway, link).await, 200, "{said}");
    // Also by a client that never was without the account.
    for client in [&client, &begun(&gateway).await] {
        until_so("its tools are listed", async || {
            names(&client.send(&list(2)).await) == ["a__t", "s__of-good-1"]
        })
        .await;
    }
    let said = introduction(&client_of(&gateway)).await;
    assert!(said.contains("for good-1"), "{said}");
    let out = format!(
        "http://{}/api/mcp-oauth/sign-out?server=s",
        gateway.listen()
    );
    let out = reqwest::Client::new().post(out).bearer_auth(API_TOKEN);
    assert_eq!(out.send().await.unwrap().status(), 200);
    for client in [client, begun(&gateway).await] {
        let answer = client.send(&list(3)).await;
        assert_eq!(names(&answer), ["a__t", "s__sign_in"], "{}", answer.text);
        assert_eq!(missing(&answer)["s"]["reason"], "sign_in_needed");
    }
    let said = introduction(&client_of(&gateway)).await;
    assert!(!said.contains("for good-1"), "{said}");
}

/// What the union says of its servers to a new client.
async fn introduction(client: &Client) -> String {
    let answer = client.clone().initialize().await.json();
    answer["result"]["instructions"].to_string()
}

#[tokio::test]
async fn a_filter_holds_for_what_was_listed_before_it() {
    let (a, b) = (Fake::start("a").await, Fake::start("b").await);
    a.result("tools/list", tools(&["read", "write"]));
    let mut config = config_of(&[&a, &b]);
    config.union.names = bowline::config::UnionNames::Bare;
    let (gateway, client) = united_with(config.clone()).await;
    assert_eq!(names(&client.send(&list(1)).await), ["read", "write", "t"]);
    a.on("tools/list", away);
    config.servers.get_mut("a").unwrap().tools = Some(ToolFilter {
        allow: None,
        deny: vec!["write".to_owned()],
    });
    gateway.reload(config).unwrap();
    for client in [client, begun(&gateway).await] {
        let answer = client.send(&list(2)).await;
        assert_eq!(names(&answer), ["read", "t"]);
        assert_eq!(missing(&answer)["a"]["state"], "stale");
    }
}

#[tokio::test]
async fn what_a_server_at_another_url_said_is_not_shown() {
    let (a, b, other) = (
        Fake::start("a").await,
        Fake::start("b").await,
        Fake::start("other").await,
    );
    a.result("tools/list", tools(&["old"]));
    a.result(
        "resources/list",
        json!({"resources": [{"uri": "x:1", "name": "r"}]}),
    );
    let mut config = config_of(&[&a, &b]);
    let (gateway, client) = united_with(config.clone()).await;
    assert_eq!(names(&client.send(&list(1)).await), ["a__old", "b__t"]);
    other.on("tools/list", away);
    let there = bowline::config::Server::from_url(&other.url()).unwrap();
    config.servers.insert("a".parse().unwrap(), there);
    gateway.reload(config).unwrap();
    let newcomer = begun(&gateway).await;
    let answer = newcomer.send(&list(2)).await;
    assert_eq!(names(&answer), ["b__t"]);
    assert_eq!(missing(&answer)["a"]["state"], "absent");
    let used = newcomer.call("use", "a__t", &json!({})).await;
    assert_eq!(
        unmarked(used.messages().pop().unwrap())["result"],
        text("other")
    );
}
