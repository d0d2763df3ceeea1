//! `transport = "auto"`: streamable HTTP first, and HTTP+SSE only if the server says that it does not know that.

use std::time::Duration;

use bowline::config::Transport;
use bowline_testbed::scripted::{Scripted, initialize_result};
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
async fn what_a_server_has_spoken_is_tried_first() {
    for status in [400, 404, 405] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        Client::open(&gateway, &mut server, "u").await;
        let mut client = Client::new(&gateway);
        let (_refused, ()) = tokio::join!(client.initialize(), async {
            for method in ["POST", "GET"] {
                let asked = server.next().await;
                assert_eq!(asked.method, method);
                asked.reply(status, &[], "");
            }
        });
        assert!(client.session.is_none(), "{status}");
        Client::open(&gateway, &mut server, "v").await;
        server.finish();
    }
}

/// A session over HTTP+SSE, after the other transport was declined if that is tried first.
async fn opens_over_sse(server: &mut Scripted, client: &mut Client) {
    let (opened, pen) = tokio::join!(client.initialize(), async {
        let mut asked = server.next().await;
        if asked.method == "POST" {
            asked.reply(405, &[], "");
            asked = server.next().await;
        }
        assert_eq!(asked.method, "GET");
        let mut pen = asked.events();
        pen.write("event: endpoint\ndata: /messages\n\n");
        let posted = server.next().await;
        let id = posted.json()["id"].clone();
        let answer = json!({"jsonrpc": "2.0", "id": id, "result": initialize_result()});
        posted.reply(202, &[], "");
        pen.write(format!("event: message\ndata: {answer}\n\n"));
        pen
    });
    assert_eq!(opened.status, 200, "{opened:?}");
    drop(pen);
}

#[tokio::test]
async fn a_server_that_is_rolled_back_or_upgraded_is_served_at_once() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    Client::open(&gateway, &mut server, "u").await;
    opens_over_sse(&mut server, &mut Client::new(&gateway)).await;
    // As servers of streamable HTTP answer a GET without a session.
    for status in [400, 405, 406] {
        let mut client = Client::new(&gateway);
        let (opened, ()) = tokio::join!(client.initialize(), async {
            let asked = server.next().await;
            assert_eq!(asked.method, "GET", "{status}");
            asked.reply(status, &[], "");
            server.next().await.initialized(Some("w"));
        });
        assert_eq!(opened.status, 200, "{opened:?}");
        opens_over_sse(&mut server, &mut Client::new(&gateway)).await;
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
