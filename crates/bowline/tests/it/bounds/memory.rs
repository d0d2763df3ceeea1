//! What clients make a gateway hold is bounded: calls that nobody answers, and heads that do not end.

use bowline::Gateway;
use bowline_testbed::scripted::Scripted;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::kit::client::{Client, sent};
use crate::kit::gateway::config;
use crate::kit::messages::call;

const LARGEST: usize = 128 << 10;

/// A call of the largest size.
fn large(id: usize) -> Value {
    let mut message = call(id);
    message["params"]["filler"] = json!("");
    let rest = LARGEST - message.to_string().len();
    message["params"]["filler"] = json!("x".repeat(rest));
    message
}

#[tokio::test]
async fn the_bytes_of_a_call_count_until_it_is_answered() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.body_bytes = LARGEST;
    let gateway = Gateway::start(config).await.unwrap();
    let client = Client::open(&gateway, &mut server, "u").await;
    let (mut calls, mut asked) = (JoinSet::new(), Vec::new());
    for id in 0..64 {
        calls.spawn(sent(client.post(&large(id))));
        asked.push(server.next().await);
    }
    let refused = sent(client.post(&large(64))).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
    // What is small still passes.
    calls.spawn(sent(client.post(&call(65))));
    asked.push(server.next().await);
    let one = asked.swap_remove(0);
    one.result(&json!({}));
    assert_eq!(calls.join_next().await.unwrap().unwrap().status, 200);
    calls.spawn(sent(client.post(&large(66))));
    asked.push(server.next().await);
    for one in asked {
        one.result(&json!({}));
    }
    assert!(calls.join_all().await.iter().all(|it| it.status == 200));
    server.finish();
}

#[tokio::test]
async fn a_stranger_has_a_short_head() {
    let mut server = Scripted::start().await;
    let gateway = Gateway::start(config(&[("s", server.url())]))
        .await
        .unwrap();
    let listen = gateway.listen().tcp().unwrap();
    let head = "GET /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nx: ";
    #[expect(clippy::disallowed_methods, reason = "a client's own")]
    let mut stranger = TcpStream::connect(listen).await.unwrap();
    stranger.write_all(head.as_bytes()).await.unwrap();
    stranger.write_all(&[b'x'; 16 << 10]).await.unwrap();
    let mut said = String::new();
    // It is closed at once, or when the rest was not read.
    drop(stranger.read_to_string(&mut said).await);
    assert!(said.starts_with("HTTP/1.1 431 "), "{said:?}");
    // A client that is known may have more.
    let client = Client::open(&gateway, &mut server, "u").await;
    let session = client.session.as_ref().unwrap().to_str().unwrap();
    #[expect(clippy::disallowed_methods, reason = "a client's own")]
    let mut known = TcpStream::connect(listen).await.unwrap();
    let ping = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    for filler in [1, 32 << 10] {
        let post = format!(
            "POST /mcp/s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-session-id: {session}\r\nx: {}\r\n\
             content-length: {}\r\n\r\n{ping}",
            "x".repeat(filler),
            ping.len()
        );
        let mut answer = [0; 12];
        tokio::join!(
            async { known.write_all(post.as_bytes()).await.unwrap() },
            async { server.next().await.reply(202, &[], "") }
        );
        known.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 202");
        let mut rest = Vec::new();
        while !rest.ends_with(b"\r\n\r\n") {
            rest.push(known.read_u8().await.unwrap());
        }
    }
    server.finish();
}
