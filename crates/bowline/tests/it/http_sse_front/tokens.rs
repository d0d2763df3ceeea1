//! Whose stream a message is for: the token in its URL says so, to its caller and at its server alone.

use std::collections::BTreeMap;

use bowline::Gateway;
use bowline::config::{Caller, CallerName, Config, KeyHash};
use bowline_testbed::scripted::{PATIENCE, Scripted};
use reqwest::{StatusCode, Url};
use serde_json::json;

use super::conversations::begin;
use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::messages::{call, list};
use crate::kit::sse::{REVISION, Sse, opened};

fn callers() -> BTreeMap<CallerName, Caller> {
    let caller = |name: &str| {
        let key = KeyHash::of(format!("k-{name}").as_bytes());
        (name.parse().unwrap(), Caller::with_key(key))
    };
    BTreeMap::from([caller("ann"), caller("bob")])
}

fn guarded(servers: &[(&str, &str)]) -> Config {
    Config {
        callers: callers(),
        ..config(servers)
    }
}

fn is_unknown(answer: &crate::kit::client::Answer) -> bool {
    answer.status == 404 && answer.json()["error"]["code"] == -32001
}

#[tokio::test]
async fn a_key_is_needed_for_the_stream_and_for_every_message() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(guarded(&[("s", server.url())]))
        .await
        .unwrap();
    let at = |path: &str| Client::at(format!("http://{}{path}", gateway.listen()));
    for client in [
        at("/sse/s"),
        at("/s/sse"),
        at("/sse/none"),
        at("/sse/s").with_key("k-eve"),
    ] {
        assert_eq!(sent(client.get()).await.status, 401, "{}", client.url);
    }
    let mut ann = Sse::open_as(&gateway, "/sse/s", Some("k-ann")).await;
    let _listening = begin(&mut server, &mut ann, REVISION, "u1").await;
    let without = Client::at(ann.endpoint.to_string());
    assert_eq!(without.send(&call(1)).await.status, 401);
    server.finish();
}

#[tokio::test]
async fn for_another_caller_a_token_is_unknown() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(guarded(&[("s", server.url())]))
        .await
        .unwrap();
    let mut ann = Sse::open_as(&gateway, "/sse/s", Some("k-ann")).await;
    let _listening = begin(&mut server, &mut ann, REVISION, "u1").await;
    let bob = Client::at(ann.endpoint.to_string()).with_key("k-bob");
    let refused = bob.send(&call(1)).await;
    assert!(is_unknown(&refused), "{}", refused.text);
    ann.say(&call(2)).await;
    assert_eq!(server.next().await.json()["id"], 2);
}

#[tokio::test]
async fn a_caller_that_loses_the_server_loses_its_stream() {
    let mut server = Scripted::start().await;
    let mut config = guarded(&[("s", server.url()), ("t", "http://127.0.0.1:9/")]);
    let gateway = Gateway::start(config.clone()).await.unwrap();
    let mut ann = Sse::open_as(&gateway, "/sse/s", Some("k-ann")).await;
    let _of_ann = begin(&mut server, &mut ann, REVISION, "u1").await;
    let mut bob = Sse::open_as(&gateway, "/sse/s", Some("k-bob")).await;
    let _of_bob = begin(&mut server, &mut bob, REVISION, "u2").await;
    let message = Client::at(bob.endpoint.to_string()).with_key("k-bob");
    config.callers.get_mut("bob").unwrap().servers = Some(vec!["t".parse().unwrap()]);
    gateway.reload(config).unwrap();
    bob.ended().await;
    let refused = message.send(&call(1)).await;
    assert_eq!(refused.status, 404, "{}", refused.text);
    ann.say(&call(2)).await;
    assert_eq!(next_call(&mut server).await, 2);
}

#[tokio::test]
async fn a_stream_ends_with_the_reload_that_takes_its_server_also_before_its_session() {
    let server = Scripted::start().await;
    let mut config = guarded(&[("s", server.url()), ("t", "http://127.0.0.1:9/")]);
    let gateway = Gateway::start(config.clone()).await.unwrap();
    let bob = Sse::open_as(&gateway, "/sse/s", Some("k-bob")).await;
    config.callers.get_mut("bob").unwrap().servers = Some(vec!["t".parse().unwrap()]);
    gateway.reload(config).unwrap();
    let ended = tokio::time::timeout(PATIENCE, bob.ended()).await;
    assert!(ended.is_ok(), "the stream is still open");
    server.finish();
}

/// The id of the next call; the end of another session may come first.
async fn next_call(server: &mut Scripted) -> u64 {
    loop {
        let asked = server.next().await;
        if asked.method.as_str() == "POST" {
            return asked.json()["id"].as_u64().unwrap();
        }
        asked.reply(200, &[], "");
    }
}

#[tokio::test]
async fn at_another_server_or_changed_a_token_is_unknown() {
    let (mut server, other) = (Scripted::start().await, Scripted::start().await);
    let servers = [("s", server.url()), ("t", other.url())];
    let gateway = Gateway::start(config(&servers)).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    let _listening = begin(&mut server, &mut client, REVISION, "u1").await;
    let token = client
        .endpoint
        .path()
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    let mut changed = token.clone().into_bytes();
    changed[token.len() / 2] ^= 1;
    let changed = String::from_utf8(changed).unwrap();
    let long = "A".repeat(5000);
    for path in [
        format!("/sse/t/{token}"),
        format!("/t/sse/{token}"),
        format!("/sse/s/{changed}"),
        format!("/sse/s/{}", &token[1..]),
        format!("/sse/s/{long}"),
        "/sse/s/AAAA".to_owned(),
        format!("/sse/s/x/{token}"),
    ] {
        let url = client.endpoint.join(&path).unwrap();
        let refused = sent(client.post_to(url, list(1).to_string())).await;
        assert!(is_unknown(&refused), "{path}: {}", refused.text);
    }
    // The same stream by its other path.
    let url = client.endpoint.join(&format!("/s/sse/{token}")).unwrap();
    let accepted = sent(client.post_to(url, list(2).to_string())).await;
    assert_eq!(accepted.status, 202);
    assert_eq!(server.next().await.json()["id"], 2);
    other.finish();
}

#[tokio::test]
async fn the_token_of_an_earlier_process_is_unknown() {
    let (server, store) = (Scripted::start().await, tempfile::tempdir().unwrap());
    let mut config = config(&[("s", server.url())]);
    config.store = crate::kit::stores::in_file(store.path());
    let gateway = Gateway::start(config.clone()).await.unwrap();
    let (_, events, endpoint) = opened(&gateway, "/sse/s", None).await;
    let path = endpoint.path().to_owned();
    drop(events);
    gateway.stop().await;
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::at(format!("http://{}{path}", gateway.listen()));
    let refused = client.send(&list(1)).await;
    assert!(is_unknown(&refused), "{}", refused.text);
}

#[tokio::test]
async fn the_session_id_is_not_in_the_url() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    crate::kit::gateway::with_admin(&mut config);
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    let before = client.endpoint.clone();
    let _listening = begin(&mut server, &mut client, REVISION, "u1").await;
    // Nothing of the session can be in it: it is from before the session.
    assert_eq!(client.endpoint, before);
    let found = Client::at(format!("http://{}/mcp/s", gateway.listen()));
    let token = before.path().rsplit('/').next().unwrap();
    let request = found.post(&list(1)).header("mcp-session-id", token);
    assert_eq!(sent(request).await.status, 404);
}

#[tokio::test]
async fn pages_of_other_origins_and_other_hosts_are_refused() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.origins = vec!["https://app.example".parse().unwrap()];
    let gateway = Gateway::start(config).await.unwrap();
    let (_, _events, endpoint) = opened(&gateway, "/sse/s", None).await;
    let (stream, messages) = (
        Client::at(format!("http://{}/sse/s", gateway.listen())),
        Client::at(endpoint.to_string()),
    );
    for (name, value) in [("origin", "https://evil.example"), ("host", "evil.example")] {
        let got = sent(stream.get().header(name, value)).await;
        assert_eq!(got.status, StatusCode::FORBIDDEN, "{name}");
        let posted = sent(messages.post(&list(1)).header(name, value)).await;
        assert_eq!(posted.status, StatusCode::FORBIDDEN, "{name}");
    }
    let allowed = "https://app.example";
    let posted = sent(messages.post(&list(1)).header("origin", allowed)).await;
    assert_eq!(posted.status, 202);
    assert_eq!(posted.headers["access-control-allow-origin"], allowed);
    let preflight = messages
        .request(reqwest::Method::OPTIONS)
        .header("origin", allowed)
        .header("access-control-request-method", "POST");
    assert_eq!(sent(preflight).await.status, 204);
}

#[tokio::test]
async fn only_a_configured_proxy_says_which_prefix_it_took_off() {
    let server = Scripted::start().await;
    for (is_configured, expected) in [(true, "/tools/sse/s/"), (false, "/sse/s/")] {
        let mut config = config(&[("s", server.url())]);
        if is_configured {
            config.limits.proxies = vec!["127.0.0.0/8".parse().unwrap()];
        }
        let gateway = Gateway::start(config).await.unwrap();
        let client = Client::at(format!("http://{}/sse/s", gateway.listen()));
        let asked = client
            .get()
            .header("x-forwarded-prefix", "/tools")
            .header("x-forwarded-host", "evil.example")
            .header("x-forwarded-proto", "https");
        let mut events = crate::kit::events::Events::new(asked.send().await.unwrap());
        let first = events.next().await;
        let told = first.strip_prefix("event: endpoint\ndata: ").unwrap();
        assert!(told.starts_with(expected), "{told}");
        let url = Url::parse(&client.url).unwrap();
        assert_eq!(url.join(told.trim_end()).unwrap().origin(), url.origin());
    }
}

#[tokio::test]
async fn a_loop_is_refused() {
    let (gateway, mut server, client, _listening) = super::conversations::scripted(REVISION).await;
    client
        .say(&crate::kit::wired::initialize(REVISION, &json!({})))
        .await;
    let asked = loop {
        let asked = server.next().await;
        if asked.method == "POST" {
            break asked;
        }
        asked.reply(200, &[], "");
    };
    let via = asked.header("via").to_owned();
    assert!(via.contains("bowline-"), "{via}");
    let stream = Client::at(format!("http://{}/sse/s", gateway.listen()));
    assert_eq!(sent(stream.get().header("via", &via)).await.status, 508);
    let again = client.post(crate::kit::messages::initialize_message().to_string());
    assert_eq!(sent(again.header("via", &via)).await.status, 508);
}
