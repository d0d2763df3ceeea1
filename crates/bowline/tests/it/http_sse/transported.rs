//! What HTTP+SSE has of HTTP: certificates, redirects, cookies, and a place among the streams.

use bowline::Gateway;
use bowline::config::{Config, Transport};
use bowline_testbed::certificates;
use bowline_testbed::stdio::over_sse::OverSse;
use bowline_testbed::tls::Terminator;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::only;
use crate::kit::programs::{Tally, text_of};
use crate::kit::sse_server::{SsePlay, reason};
use crate::kit::wait::until_so;

fn pinned(config: &mut Config) {
    only(config).transport = Transport::Sse;
}

#[tokio::test]
async fn a_server_behind_https_is_trusted_by_its_authority() {
    let directory = tempfile::tempdir().unwrap();
    certificates::make(directory.path(), "server")
        .await
        .unwrap();
    let tally = Tally::default();
    let server = OverSse::start(tally.path()).await.unwrap();
    let tls = Terminator::start(server.address(), directory.path(), "server").await;
    let url = tls.as_ref().unwrap().url().replace("/mcp", "/sse");
    let ca = directory.path().join("ca.pem");
    let written = format!(
        "listen = '127.0.0.1:0'\nadmin = 'off'\n[store]\nkind = 'memory'\n\
         [servers.s]\nurl = '{url}'\ntransport = 'sse'\nca_file = '{}'\n",
        ca.display()
    );
    let config = Config::parse("test", &written, &|_| None);
    let config = config.unwrap_or_else(|errors| panic!("{errors}"));
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Client::new(&gateway);
    assert_eq!(client.begin().await.status, 200);
    let answer = client.call(1, "echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    assert_eq!(server.complaints(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_stream_that_moved_is_followed_and_its_messages_with_it() {
    let mut play = SsePlay::start(pinned).await;
    play.server.behave(|manners| {
        manners.moved = Some("/deep/sse".to_owned());
        manners.endpoint = Some("messages?session_id={id}".to_owned());
    });
    assert_eq!(play.client.begin().await.status, 200);
    let answer = play.call("echo", &json!({"text": "x"})).await;
    assert_eq!(text_of(&answer), "x");
    let targets = play.server.targets();
    let is_deep = |target: &String| target.starts_with("/deep/messages?");
    assert!(targets.iter().all(is_deep), "{targets:?}");
    play.assert_no_complaints();
    // Another origin is not.
    let other = OverSse::start(play.tally.path()).await.unwrap();
    play.server
        .behave(|manners| manners.moved = Some(other.url()));
    let refused = Client::new(&play.gateway).initialize().await;
    assert_eq!(reason(&refused).0, "upstream_redirected", "{refused:?}");
    assert_eq!(other.gets(), 0);
}

#[tokio::test]
async fn a_session_takes_a_place_among_the_streams_until_it_ends() {
    let play = SsePlay::start(|config| {
        pinned(config);
        config.limits.streams = 3;
    })
    .await;
    let mut clients = Vec::new();
    let refused = loop {
        let mut client = Client::new(&play.gateway);
        let opened = client.initialize().await;
        if client.session.is_none() {
            break opened;
        }
        clients.push(client);
        assert!(clients.len() <= 3, "no limit");
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.text.contains("too many streams"), "{refused:?}");
    assert_eq!(play.server.sessions(), clients.len());
    let first = clients.pop().unwrap();
    assert!(sent(first.delete()).await.status.is_success());
    until_so("a place is free", async || {
        let mut client = Client::new(&play.gateway);
        client.initialize().await.status == 200
    })
    .await;
}

/// The answer comes on the stream first, and that of the POST brings a cookie.
#[tokio::test]
async fn a_cookie_that_comes_late_is_kept() {
    let play = SsePlay::open().await;
    play.server.behave(|manners| {
        manners.answers_late = true;
        manners.cookie = Some("late=1; Path=/".to_owned());
    });
    until_so("the cookie comes along", async || {
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
        let cookies = play.server.cookies();
        cookies.last().is_some_and(|last| last.contains("late=1"))
    })
    .await;
}
