//! The proxy injects the configured fault, and nothing else.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use http::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::framing::{Body, Chunk, Head};
use super::{Canned, Fault, Faulty, When};
use crate::scripted::Scripted;

const BODY: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"bump"}}"#;

fn address(server: &Scripted) -> SocketAddr {
    let url: http::Uri = server.url().parse().unwrap();
    url.authority().unwrap().as_str().parse().unwrap()
}

async fn before(server: &Scripted) -> Faulty {
    Faulty::start(address(server)).await.unwrap()
}

async fn dial(proxy: &Faulty) -> io::Result<TcpStream> {
    #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
    TcpStream::connect(proxy.address()).await
}

async fn ask(proxy: &Faulty, body: &str) -> TcpStream {
    let mut stream = dial(proxy).await.unwrap();
    let length = body.len();
    let request =
        format!("POST /mcp HTTP/1.1\r\nhost: h\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// What comes until the end of the connection, and whether that was a reset.
async fn rest(mut stream: TcpStream) -> (String, bool) {
    let mut read = Vec::new();
    let reset = stream.read_to_end(&mut read).await.is_err();
    (String::from_utf8(read).unwrap(), reset)
}

#[tokio::test]
async fn without_rules_everything_passes_on_one_connection() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    let mut stream = dial(&proxy).await.unwrap();
    for answer in ["one", "two"] {
        stream
            .write_all(b"GET /a?b HTTP/1.1\r\nhost: h\r\n\r\n")
            .await
            .unwrap();
        let asked = server.next().await;
        assert_eq!(
            (asked.method.as_str(), asked.target.as_str()),
            ("GET", "/a?b")
        );
        asked.reply(200, &[], answer);
        let mut read = BytesMut::new();
        while !read.ends_with(answer.as_bytes()) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0);
        }
    }
    assert_eq!(proxy.requests(), 2);
    server.finish();
}

#[tokio::test]
async fn a_reset_before_forwarding_reaches_nobody() {
    let server = Scripted::start().await;
    let proxy = before(&server).await;
    let mut rule = proxy.next(1, When::any(), Fault::ResetBefore);
    assert_eq!(rest(ask(&proxy, BODY).await).await, (String::new(), true));
    rule.until_done(1).await;
    server.finish();
}

#[tokio::test]
async fn a_reset_after_forwarding_lets_the_upstream_do_its_work() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    let mut rule = proxy.next(1, When::any(), Fault::ResetAfter);
    let stream = ask(&proxy, BODY).await;
    rule.until_met(1).await;
    assert_eq!(rule.done(), 0);
    server.next().await.result(&json!({}));
    assert_eq!(rest(stream).await, (String::new(), true));
    rule.until_done(1).await;
}

#[tokio::test]
async fn a_body_is_cut_at_the_byte() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    proxy.next(2, When::any(), Fault::Cut(5));
    let stream = ask(&proxy, BODY).await;
    server.next().await.reply(200, &[], "0123456789");
    let (text, _) = rest(stream).await;
    assert!(text.ends_with("\r\n\r\n01234"), "{text}");

    // Chunks: only the payload counts.
    let stream = ask(&proxy, BODY).await;
    let mut pen = server.next().await.events();
    pen.write("ab");
    pen.write("cdefgh");
    let (text, _) = rest(stream).await;
    assert!(text.ends_with("\r\n\r\n2\r\nab\r\n6\r\ncde"), "{text:?}");
    pen.closed().await;
}

#[tokio::test]
async fn any_status_can_be_answered_and_rules_choose_their_requests() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    let gone = Canned::json(404, r#"{"id":$id}"#).header("connection", "close");
    let rule = proxy.always(When::tool("bump"), Fault::Answer(gone));
    proxy.always(When::http(Method::GET), Fault::ResetBefore);
    for count in 1..=2 {
        let mut stream = ask(&proxy, BODY).await;
        let mut read = BytesMut::new();
        while !read.ends_with(br#"{"id":7}"#) {
            assert!(stream.read_buf(&mut read).await.unwrap() > 0);
        }
        assert!(read.starts_with(b"HTTP/1.1 404 "));
        assert_eq!(rule.met(), count);
    }
    let stream = ask(&proxy, &BODY.replace("bump", "read")).await;
    server
        .next()
        .await
        .reply(200, &[("connection", "close")], "read");
    assert!(rest(stream).await.0.ends_with("read"));
    rule.remove();
    let stream = ask(&proxy, BODY).await;
    server
        .next()
        .await
        .reply(200, &[("connection", "close")], "bump");
    assert!(rest(stream).await.0.ends_with("bump"));
}

#[tokio::test]
async fn it_refuses_and_listens_again_on_the_same_port() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    for _ in 0..3 {
        let open = dial(&proxy).await.unwrap();
        proxy.refuse().await;
        let refused = dial(&proxy).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        proxy.break_connections();
        assert!(rest(open).await.1);
        proxy.accept().unwrap();
    }
    let stream = ask(&proxy, BODY).await;
    server
        .next()
        .await
        .reply(200, &[("connection", "close")], "back");
    assert!(rest(stream).await.0.ends_with("back"));
}

#[tokio::test]
async fn answers_can_be_late() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    let late = Duration::from_millis(50);
    let from = Instant::now();
    proxy.next(1, When::any(), Fault::Delay(late));
    let _delayed = ask(&proxy, BODY).await;
    server.next().await.reply(200, &[], "");
    assert!(from.elapsed() >= late);

    let mut rule = proxy.next(1, When::any(), Fault::DelayAnswer(late));
    let stream = ask(&proxy, BODY).await;
    server
        .next()
        .await
        .reply(200, &[("connection", "close")], "x");
    let from = Instant::now();
    assert!(rest(stream).await.0.ends_with('x'));
    assert!(from.elapsed() >= late / 2);
    rule.until_done(1).await;
}

#[tokio::test]
async fn a_client_that_leaves_closes_the_upstream_stream() {
    let mut server = Scripted::start().await;
    let proxy = before(&server).await;
    let stream = ask(&proxy, BODY).await;
    let pen = server.next().await.events();
    drop(stream);
    pen.closed().await;
}

#[test]
fn chunks_are_followed_wherever_they_are_split() {
    let wire = b"3;x=1\r\nabc\r\n0010\r\n0123456789abcdef\r\n0\r\nt: v\r\n\r\nNEXT";
    for split in 0..wire.len() {
        let mut body = Body::Chunked(Chunk::Size(0, false));
        let mut left = usize::MAX;
        let first = body.advance(&wire[..split], &mut left);
        let second = body.advance(&wire[first..], &mut left);
        assert!(body.is_over(), "{split}");
        assert_eq!(&wire[first + second..], b"NEXT", "{split}");
        assert_eq!(usize::MAX - left, 19, "{split}");
    }
}

#[test]
fn heads_say_how_bodies_end() {
    let body = |head: &str| Head::take(&mut BytesMut::from(head)).map(|head| head.body());
    assert!(body("HTTP/1.1 200 OK\r\n").is_none());
    let ends = body("HTTP/1.1 204 No\r\ncontent-length: 4\r\n\r\n").unwrap();
    assert!(ends.is_over());
    let ends = body("HTTP/1.1 200 OK\r\nCONTENT-LENGTH:  4\r\n\r\n").unwrap();
    assert!(matches!(ends, Body::Length(4)));
    let ends = body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    assert!(matches!(ends, Body::Chunked(_)));
    assert!(matches!(
        body("HTTP/1.1 200 OK\r\n\r\n"),
        Some(Body::UntilEnd)
    ));
}
