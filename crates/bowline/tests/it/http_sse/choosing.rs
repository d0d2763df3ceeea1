//! `transport = "auto"`: streamable HTTP first, and HTTP+SSE only if the server says that it does not know that.

use std::time::Duration;

use bowline::config::Transport;
use bowline_testbed::scripted::Scripted;
use serde_json::json;

use crate::kit::client::Client;
use crate::kit::gateway::{config, gateway, only};
use crate::kit::messages::JSON;
use crate::kit::programs::text_of;
use crate::kit::sse_server::{SsePlay, reason};

#[tokio::test]
async fn a_refusal_that_means_another_transport_is_followed_once_for_all_sessions() {
    for status in [400, 404, 405] {
        let mut play = SsePlay::start(|_| {}).await;
        play.server.behave(|manners| manners.wrong_post = status);
        assert_eq!(play.client.begin().await.status, 200, "{status}");
        assert_eq!(play.server.wrong_posts(), 1);
        let mut second = Client::new(&play.gateway);
        assert_eq!(second.begin().await.status, 200);
        play.server.forget();
        let answer = play.call("echo", &json!({"text": "x"})).await;
        assert_eq!(text_of(&answer), "x");
        assert_eq!(play.server.wrong_posts(), 1, "it is known by now");
        assert_eq!(play.tally.starts(), 3);
    }
}

#[tokio::test]
async fn nothing_else_is_taken_for_another_transport() {
    for status in [401, 403, 500, 501, 502, 503, 406, 415, 429] {
        let mut play = SsePlay::start(|config| {
            only(config).recovery.budget = Duration::from_secs(1);
        })
        .await;
        play.server.behave(|manners| manners.wrong_post = status);
        let refused = play.client.initialize().await;
        assert!(play.client.session.is_none(), "{status}: {refused:?}");
        assert_eq!(play.server.gets(), 0, "{status}");
    }
}

#[tokio::test]
async fn an_answer_to_the_request_is_an_answer() {
    for status in [400, 404, 405] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let mut client = Client::new(&gateway);
        let error = json!({"jsonrpc": "2.0", "id": "init",
            "error": {"code": -32602, "message": "unsupported version"}});
        let (refused, ()) = tokio::join!(client.initialize(), async {
            let asked = server.next().await;
            assert_eq!(asked.method, "POST");
            asked.reply(status, &[JSON], error.to_string());
        });
        assert_eq!(refused.json(), error, "{status}");
    }
}

/// A load balancer without a server answers 404 for a moment, also while a session is recovered.
#[tokio::test]
async fn a_server_that_has_spoken_streamable_http_is_not_taken_for_another() {
    for status in [400, 404, 405] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        Client::open(&gateway, &mut server, "u").await;
        let mut client = Client::new(&gateway);
        let (_refused, ()) = tokio::join!(client.initialize(), async {
            server.next().await.reply(status, &[], "");
        });
        assert!(client.session.is_none(), "{status}");
        server.finish();
    }
}

/// What was found out is about a URL.
#[tokio::test]
async fn another_url_is_found_out_anew() {
    let mut play = SsePlay::start(|_| {}).await;
    assert_eq!(play.client.begin().await.status, 200);
    assert_eq!(play.server.wrong_posts(), 1);
    let url = format!("{}?tenant=b", play.server.url());
    play.gateway.reload(config(&[("s", &url)])).unwrap();
    assert_eq!(play.client.begin().await.status, 200);
    assert_eq!(play.server.wrong_posts(), 2);
}

#[tokio::test]
async fn when_both_fail_both_are_told() {
    let mut play = SsePlay::start(|_| {}).await;
    play.server.behave(|manners| {
        manners.wrong_post = 404;
        manners.get = Some(405);
    });
    let refused = play.client.initialize().await;
    let (reason, message) = reason(&refused);
    assert_eq!(reason, "upstream_not_mcp", "{refused:?}");
    for told in ["404", "405", "streamable HTTP", "HTTP+SSE"] {
        assert!(message.contains(told), "{told}: {message}");
    }
}

#[tokio::test]
async fn a_refusal_of_the_second_attempt_does_not_hide_the_first() {
    for (status, name) in [(401, "upstream_unauthorized"), (403, "upstream_forbidden")] {
        let mut play = SsePlay::start(|_| {}).await;
        play.server.behave(|manners| {
            manners.wrong_post = 405;
            manners.get = Some(status);
        });
        let (reason, message) = reason(&play.client.initialize().await);
        assert_eq!(reason, name, "{message}");
        for told in ["405", &status.to_string(), "streamable HTTP", "HTTP+SSE"] {
            assert!(message.contains(told), "{told}: {message}");
        }
    }
}

#[tokio::test]
async fn what_is_pinned_is_not_tried_otherwise() {
    let mut play =
        SsePlay::start(|config| only(config).transport = Transport::StreamableHttp).await;
    play.client.initialize().await;
    assert!(play.client.session.is_none());
    assert_eq!(play.server.gets(), 0);
    let mut play = SsePlay::start(|config| only(config).transport = Transport::Sse).await;
    assert_eq!(play.client.begin().await.status, 200);
    assert_eq!(play.server.wrong_posts(), 0);
}
