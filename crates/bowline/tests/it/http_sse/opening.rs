//! How a session is opened: where the `endpoint` event leads, and where it does not.

use std::time::Duration;

use bowline::config::{Server, Transport};
use bowline_testbed::stdio::over_sse::OverSse;
use http::HeaderValue;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::{config, only};
use crate::kit::log::Log;
use crate::kit::messages::initialize_message;
use crate::kit::programs::{Tally, text_of};
use crate::kit::sse_server::{SsePlay, reason};

fn pinned(config: &mut bowline::config::Config) {
    only(config).transport = Transport::Sse;
    only(config).recovery.budget = Duration::from_secs(3);
}

#[tokio::test]
async fn the_message_url_is_relative_or_absolute_with_its_path_and_query() {
    for endpoint in [
        "/messages?session_id={id}&x=a%2Fb",
        "messages?session_id={id}",
        "http://HERE/deep/messages?session_id={id}",
        "//HERE/messages?session_id={id}",
    ] {
        let mut play = SsePlay::start(pinned).await;
        let here = play.server.address().to_string();
        let endpoint = endpoint.replace("HERE", &here);
        play.server
            .behave(|manners| manners.endpoint = Some(endpoint.clone()));
        let opened = play.client.begin().await;
        assert_eq!(opened.status, 200, "{endpoint}: {opened:?}");
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
        let named = endpoint.replace("{id}", "1");
        let path = named.trim_start_matches("http:").trim_start_matches("//");
        let path = path.trim_start_matches(&here).trim_start_matches('/');
        let targets = play.server.targets();
        assert!(
            targets.iter().all(|target| target == &format!("/{path}")),
            "{targets:?}"
        );
        play.assert_no_complaints();
    }
}

#[tokio::test]
async fn the_clients_query_goes_along_and_overrides_nothing() {
    let mut play = SsePlay::start(|config| {
        pinned(config);
        let url = only(config).target.urls()[0].to_string();
        *only(config) = Server::from_url(&format!("{url}?key=operators")).unwrap();
        pinned(config);
    })
    .await;
    let url = play.client.url.clone();
    play.client.url = format!("{url}?session_id=9&key=clients&tenant=a");
    assert_eq!(play.client.begin().await.status, 200);
    let targets = play.server.targets();
    assert!(
        targets
            .iter()
            .all(|target| target == "/messages?session_id=1&tenant=a"),
        "{targets:?}"
    );
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_refused_by_name_and_without_its_secrets() {
    let tally = Tally::default();
    let other = OverSse::start(tally.path()).await.unwrap();
    let mut play = SsePlay::start(pinned).await;
    let elsewhere = format!("http://{}/messages?token=secret-1", other.address());
    play.server
        .behave(|manners| manners.endpoint = Some(elsewhere));
    let refused = play.client.initialize().await;
    let (reason, message) = reason(&refused);
    assert_eq!(reason, "upstream_not_mcp", "{refused:?}");
    let origin = format!("http://{}", other.address());
    assert!(message.contains(&origin), "{message}");
    assert!(!refused.text.contains("secret-1"), "{refused:?}");
    assert!(other.targets().is_empty());
}

#[tokio::test]
async fn an_endpoint_that_is_no_url_is_refused() {
    let mut play = SsePlay::start(pinned).await;
    play.server
        .behave(|manners| manners.endpoint = Some("http://[".to_owned()));
    let (reason, message) = reason(&play.client.initialize().await);
    assert_eq!(reason, "upstream_not_mcp");
    assert!(
        message.contains("`endpoint` event is not a URL"),
        "{message}"
    );
}

#[tokio::test]
async fn a_stream_without_an_endpoint_event_is_given_up_in_time() {
    let mut play = SsePlay::start(pinned).await;
    play.server.behave(|manners| manners.endpoint = None);
    let refused = play.client.initialize().await;
    let (_, message) = reason(&refused);
    assert!(message.contains("no `endpoint` event"), "{refused:?}");
    assert!(play.server.gets() >= 1);
    crate::kit::wait::until("streams are closed", || play.server.sessions() == 0).await;
}

#[tokio::test]
async fn a_second_endpoint_event_changes_nothing_and_is_logged_once() {
    let log = Log::default();
    let _kept = log.keep();
    let play = SsePlay::open().await;
    for _ in 0..3 {
        play.server
            .inject(b"event: endpoint\ndata: http://evil.example/m\n\n");
    }
    for _ in 0..3 {
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
    }
    assert_eq!(log.lines_with("a second `endpoint` event").len(), 1);
    assert_eq!(play.tally.starts(), 1);
}

#[tokio::test]
async fn the_servers_refusal_of_the_stream_is_told() {
    let mut play = SsePlay::start(pinned).await;
    play.server.behave(|manners| manners.get = Some(404));
    let refused = play.client.initialize().await;
    let (reason, message) = reason(&refused);
    assert_eq!(reason, "upstream_not_mcp", "{refused:?}");
    assert!(message.contains("404"), "{message}");
}

#[tokio::test]
async fn a_configured_token_goes_with_the_stream_and_with_messages() {
    let mut play = SsePlay::start(|config| {
        pinned(config);
        let token = HeaderValue::from_static("Bearer t-1");
        only(config).headers.insert("authorization", token);
    })
    .await;
    play.server
        .behave(|manners| manners.authorization = Some("Bearer t-1".to_owned()));
    assert_eq!(play.client.begin().await.status, 200);
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    // It is taken back: the server's refusal is told, and nothing is lost.
    play.server
        .behave(|manners| manners.authorization = Some("Bearer t-2".to_owned()));
    let refused = play.call("bump", &json!({"key": "k"})).await;
    assert_eq!(reason(&refused).0, "upstream_unauthorized", "{refused:?}");
    assert_eq!((play.tally.count("bump k"), play.tally.starts()), (0, 1));
}

/// A client of a newer revision gets the one that its server speaks.
#[tokio::test]
async fn the_servers_revision_is_the_clients() {
    let play = SsePlay::start(pinned).await;
    let mut old = initialize_message();
    old["params"]["protocolVersion"] = json!("2024-11-05");
    let mut client = Client::new(&play.gateway);
    let opened = client.initialize_as(&old).await;
    assert_eq!(opened.status, 200, "{opened:?}");
    assert_eq!(opened.json()["result"]["protocolVersion"], "2024-11-05");
    assert!(client.session.is_some());
    let answer = client.call(1, "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    // Its clients name it, too.
    let mut request = crate::kit::messages::call(2);
    request["params"] = json!({"name": "echo", "arguments": {"text": "y"}});
    let named = client
        .post(&request)
        .header("mcp-protocol-version", "2024-11-05");
    assert_eq!(text_of(&sent(named).await), "y");
}

#[tokio::test]
async fn replicas_have_their_own_sessions_and_cookies() {
    let tally = Tally::default();
    let first = OverSse::start(tally.path()).await.unwrap();
    let second = OverSse::start(tally.path()).await.unwrap();
    let urls = format!("{},{}", first.url(), second.url());
    let mut config = config(&[]);
    let server = Server::from_urls(&urls).unwrap();
    config.servers.insert("s".parse().unwrap(), server);
    let gateway = bowline::Gateway::start(config).await.unwrap();
    let mut clients = Vec::new();
    for _ in 0..12 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
        clients.push(client);
    }
    assert_eq!(first.sessions() + second.sessions(), 12);
    assert!(first.sessions() > 0 && second.sessions() > 0);
    for _ in 0..2 {
        for client in &clients {
            let answer = client.call(1, "echo", &json!({"text": "x"})).await;
            assert_eq!(text_of(&answer), "x");
        }
    }
    // One replica goes: its sessions are recovered at the other.
    let moved = first.sessions();
    drop(first);
    for (number, client) in clients.iter().enumerate() {
        let key = format!("k{number}");
        let answer = client.call(1, "bump", &json!({"key": key})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(tally.count(&format!("bump {key}")) <= 1);
    }
    assert_eq!(tally.starts(), 12 + moved);
    assert_eq!(second.complaints(), [] as [&str; 0]);
}
