//! Bad input gets the right status, a reason, and the request's id where there is one.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use http::HeaderValue;
use reqwest::Method;
use serde_json::json;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, initialize_message};
use crate::kit::opened::opened;

fn unknown(client: &Client) -> Client {
    let mut client = client.clone();
    client.session = Some(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"));
    client
}

#[tokio::test]
async fn an_unknown_session_is_404_and_echoes_the_id() {
    let (_gateway, server, client) = opened().await;
    let unknown = unknown(&client);
    for id in [json!(7), json!("seven"), json!(-1.5)] {
        let answer = unknown.send(&call(id.clone())).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
        assert_eq!(answer.json()["id"], id);
    }
    let without_id = [
        unknown.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        unknown.post(&json!({"jsonrpc": "2.0", "id": 1, "result": {}})),
        unknown.get(),
        unknown.delete(),
    ];
    for request in without_id {
        let answer = sent(request).await;
        assert_eq!((answer.status.as_u16(), answer.code()), (404, -32001));
        assert!(answer.json().get("id").is_none(), "{}", answer.text);
    }
    server.finish();
}

#[tokio::test]
async fn an_ended_session_is_unknown() {
    let (_gateway, mut server, client) = opened().await;
    assert_eq!(sent(client.delete()).await.status, 204);
    assert_eq!(server.next().await.method, "DELETE");
    for request in [client.post(&call(1)), client.get(), client.delete()] {
        assert_eq!(sent(request).await.status, 404);
    }
    server.finish();
}

#[tokio::test]
async fn a_session_of_another_server_is_unknown() {
    let (mut one, two) = (Scripted::start().await, Scripted::start().await);
    let gateway = Gateway::start(config(&[("s", one.url()), ("two", two.url())]))
        .await
        .unwrap();
    let client = Client::open(&gateway, &mut one, "u").await;
    let mut astray = client.clone();
    astray.url = client.url.replace("/mcp/s", "/mcp/two");
    for request in [astray.post(&call(1)), astray.get(), astray.delete()] {
        assert_eq!(sent(request).await.status, 404);
    }
    one.finish();
    two.finish();
}

#[tokio::test]
async fn a_missing_session_id_is_400() {
    let (_gateway, server, mut client) = opened().await;
    client.session = None;
    for request in [client.post(&call(1)), client.get(), client.delete()] {
        let answer = sent(request).await;
        assert_eq!(answer.status, 400);
        assert!(answer.text.contains("Mcp-Session-Id"), "{}", answer.text);
    }
    server.finish();
}

#[tokio::test]
async fn methods_types_and_versions() {
    let (_gateway, server, client) = opened().await;
    let status = async |request| sent(request).await.status.as_u16();
    for method in [Method::PUT, Method::PATCH, Method::OPTIONS, Method::HEAD] {
        let answer = client.request(method).send().await.unwrap();
        assert_eq!(answer.status(), 405);
        assert_eq!(answer.headers()["allow"], "GET, POST, DELETE");
    }
    let post = |accept: &'static str, content_type: &'static str| {
        client
            .request(Method::POST)
            .header("accept", accept)
            .header("content-type", content_type)
            .body(call(1).to_string())
    };
    assert_eq!(
        status(post("application/json", "application/json")).await,
        406
    );
    assert_eq!(
        status(post("text/event-stream", "application/json")).await,
        406
    );
    assert_eq!(status(post("*/*", "text/plain")).await, 415);
    assert_eq!(
        status(
            client
                .request(Method::GET)
                .header("accept", "application/json")
        )
        .await,
        406
    );
    for version in ["2024-11-05", "2026-07-28", "1", "\u{e9}"] {
        let answer = sent(
            client
                .post(&call(1))
                .header("mcp-protocol-version", version),
        )
        .await;
        assert_eq!(answer.status, 400, "{version}");
        assert!(answer.text.contains("2025-11-25"), "{}", answer.text);
        assert_eq!(answer.json()["id"], 1);
    }
    server.finish();
}

#[tokio::test]
async fn bodies_that_are_not_one_message() {
    let (_gateway, server, client) = opened().await;
    let refused = async |body: &str| {
        let answer = sent(client.post_text(body.to_owned())).await;
        (answer.status.as_u16(), answer.code())
    };
    assert_eq!(refused("{").await, (400, -32700));
    assert_eq!(refused("").await, (400, -32700));
    assert_eq!(refused("{}").await, (400, -32600));
    assert_eq!(refused("\"text\"").await, (400, -32600));
    assert_eq!(
        refused(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#).await,
        (400, -32600)
    );
    for batch in [json!([]), json!([call(1)]), json!([initialize_message()])] {
        assert_eq!(refused(&batch.to_string()).await, (400, -32600));
    }
    assert_eq!(refused(" \t\r\n[").await, (400, -32600));
    server.finish();
}

#[tokio::test]
async fn a_body_over_the_limit_is_413_whether_announced_or_not() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.body_bytes = 2048;
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::new(&gateway);
    let large = format!("\"{}\"", "x".repeat(4096));
    assert_eq!(sent(client.post_text(large.clone())).await.status, 413);
    let chunked = raw(&gateway, &format!(
        "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1002\r\n{large}\r\n0\r\n\r\n"
    )).await;
    assert!(chunked.starts_with("HTTP/1.1 413 "), "{chunked}");
    server.finish();
}

/// Only `initialize` comes without a session, and no more of it is read than may be kept.
#[tokio::test]
async fn what_comes_without_a_session_is_as_small_as_an_initialize() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let head = "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n";
    let held_back = format!("{head}content-length: 70000\r\nexpect: 100-continue\r\n\r\n");
    let answer = raw(&gateway, &held_back).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let mut large = call(1);
    large["params"]["arguments"]["text"] = "x".repeat(128 * 1024).into();
    let refused = Client::new(&gateway).send(&large).await;
    assert_eq!(refused.status, 413, "{refused:?}");
    let error = &refused.json()["error"];
    assert_eq!(error["data"]["reason"], "initialize_too_large", "{error}");
    // In a session as much as ever.
    let client = Client::open(&gateway, &mut server, "u").await;
    let sent = client.send_to(&mut server, &large, |asked| asked.result(&json!({})));
    assert_eq!(sent.await.status, 200);
    server.finish();
}

/// Most clients write all of a request before they read: while they do, the connection must not be
/// reset, or they never see the answer.
#[tokio::test]
async fn a_body_far_over_the_limit_is_told_so_to_a_client_that_writes_before_it_reads() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.body_bytes = 4 << 20;
    let gateway = Gateway::start(config).await.unwrap();
    let large = "x".repeat(3 * (4 << 20));
    let head = "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\ncontent-type: application/json\r\n";
    let announced = format!("{head}content-length: {}\r\n\r\n{large}", large.len());
    let chunk = &large[..64 * 1024];
    let chunks = format!("{:x}\r\n{chunk}\r\n", chunk.len()).repeat(large.len() / chunk.len());
    let chunked = format!("{head}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    for request in [announced, chunked] {
        let answer = raw(&gateway, &request).await;
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    // One that waits to be told to go on is told not to.
    let held_back = format!("{head}content-length: 99999999\r\nexpect: 100-continue\r\n\r\n");
    let answer = raw(&gateway, &held_back).await;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    server.finish();
}

const MADE_UP: &str = "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: */*\r\n\
    content-type: application/json\r\nmcp-session-id: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\r\n";

/// It is not looked at, so that it is no JSON is not what is wrong with it.
#[tokio::test]
async fn a_long_body_for_a_session_that_is_not_is_404_to_a_client_that_writes_before_it_reads() {
    let server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let large = "x".repeat(4 << 20);
    let announced = format!("{MADE_UP}content-length: {}\r\n\r\n{large}", large.len());
    let chunk = &large[..64 * 1024];
    let chunks = format!("{:x}\r\n{chunk}\r\n", chunk.len()).repeat(large.len() / chunk.len());
    let chunked = format!("{MADE_UP}transfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n");
    let held_back = format!("{MADE_UP}content-length: 99999\r\nexpect: 100-continue\r\n\r\n");
    for request in [announced, chunked, held_back] {
        let answer = raw(&gateway, &request).await;
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert!(answer.contains("-32001"), "{answer}");
    }
    server.finish();
}

/// What a session's body may take, 30 s, is not theirs.
#[tokio::test]
async fn a_body_that_never_ends_for_a_session_that_is_not_is_404_in_ten_seconds() {
    let server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let begun = "x".repeat(1 << 20);
    let announced = format!("{MADE_UP}content-length: {}\r\n\r\n{begun}", 4 << 20);
    let chunked = format!(
        "{MADE_UP}transfer-encoding: chunked\r\n\r\n{:x}\r\n{begun}",
        4 << 20
    );
    let answers = tokio::time::timeout(Duration::from_secs(20), async {
        tokio::join!(raw(&gateway, &announced), raw(&gateway, &chunked))
    });
    let (announced, chunked) = answers.await.expect("answers in time");
    for answer in [announced, chunked] {
        assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
        assert!(answer.contains("-32001"), "{answer}");
    }
    server.finish();
}

/// Sends bytes as they are and returns the answer's head.
async fn raw(gateway: &Gateway, request: &str) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    #[expect(
        clippy::disallowed_methods,
        reason = "a client that no library would be"
    )]
    let mut stream = tokio::net::TcpStream::connect(gateway.listen().tcp().unwrap())
        .await
        .unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = vec![0; 1024];
    let read = stream.read(&mut head).await.unwrap();
    String::from_utf8_lossy(&head[..read]).into_owned()
}

#[tokio::test]
async fn pages_from_elsewhere_are_refused() {
    let (_gateway, server, client) = opened().await;
    let status = async |name: &str, value: &str| {
        sent(client.post(&call(1)).header(name, value))
            .await
            .status
            .as_u16()
    };
    assert_eq!(status("origin", "https://evil.example").await, 403);
    assert_eq!(status("origin", "null").await, 403);
    assert_eq!(status("host", "evil.example").await, 403);
    server.finish();
}

#[tokio::test]
async fn paths() {
    let (gateway, server, client) = opened().await;
    let at = |path: &str| Client::at(format!("http://{}{path}", gateway.listen()));
    for path in ["/", "/mcp/other", "/mcp/s/deeper", "/mcpx", "/ssex", "/s"] {
        let answer = sent(at(path).post(&initialize_message())).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_ne!(answer.code(), -32001, "no session is meant");
    }
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp/s",
        "/.well-known/x",
    ] {
        let answer = sent(at(path).get()).await;
        assert_eq!(
            (
                answer.status.as_u16(),
                answer.headers["content-type"].to_str().unwrap()
            ),
            (404, "application/json")
        );
    }
    let mut alone = client.clone();
    for path in ["/mcp", "/mcp/", "/mcp/s/"] {
        alone.url = format!("http://{}{path}", gateway.listen());
        assert_eq!(
            sent(alone.post_text("{")).await.status,
            400,
            "{path} is the only server's"
        );
    }
    server.finish();
}
