//! Handshakes: which are good, and what those do that are not, or never end.

use std::time::Duration;

use bowline_testbed::scripted::PATIENCE;
use rustls::version::{TLS12, TLS13};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Site, Speaker, exchange};

/// Everything that comes on a connection before its end; a reset is an end.
async fn said(stream: &mut TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    let mut read = async || {
        let mut part = [0; 1024];
        while let Ok(length @ 1..) = stream.read(&mut part).await {
            said.extend_from_slice(&part[..length]);
        }
    };
    let patience = PATIENCE.max(Duration::from_secs(60));
    let read = tokio::time::timeout(patience, read());
    read.await.expect("an end");
    said
}

#[tokio::test]
async fn both_versions_of_tls_are_spoken_and_http_1_1_inside() {
    let site = Site::start(|_| String::new()).await;
    for version in [&TLS12, &TLS13] {
        for alpn in [&[][..], &["http/1.1"], &["h2", "http/1.1"]] {
            let speaker = Speaker {
                version: Some(version),
                alpn,
                ..Speaker::default()
            };
            let mut stream = site.connect(&speaker).await.unwrap();
            let tls = stream.get_ref().1;
            assert_eq!(tls.protocol_version(), Some(version.version));
            let agreed = tls.alpn_protocol();
            assert_eq!(agreed, (!alpn.is_empty()).then_some(&b"http/1.1"[..]));
            for _ in 0..2 {
                let heard = exchange(&mut stream, "").await.unwrap();
                assert_eq!(heard.status, 200, "{heard:?}");
                assert!(heard.head.contains("mcp-session-id: "), "{heard:?}");
            }
        }
    }
    let only_http_2 = Speaker {
        alpn: &["h2"],
        ..Speaker::default()
    };
    let refused = site.connect(&only_http_2).await.unwrap_err();
    assert!(
        refused.to_string().contains("NoApplicationProtocol"),
        "{refused}"
    );
}

#[tokio::test]
async fn http_without_tls_is_answered_with_what_to_do() {
    let site = Site::start(|_| String::new()).await;
    for request in ["GET /mcp/s HTTP/1.1\r\nhost: a\r\n\r\n", "POST /", "P"] {
        let mut stream = site.dial().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let said = String::from_utf8(said(&mut stream).await).unwrap();
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{said}"
        );
        assert!(body.contains("https://"), "{said}");
    }
}

#[tokio::test]
async fn whoever_does_not_finish_a_handshake_holds_nobody_up() {
    let site = Site::start(|_| "[limits]\nconnections_per_address = 3\n".to_owned()).await;
    // Nothing, the start of a handshake, and half a record.
    let mut held = Vec::new();
    for begun in [&[][..], &[22], &[22, 3, 1, 1, 0, 1, 0, 0]] {
        let mut stream = site.dial().await;
        stream.write_all(begun).await.unwrap();
        held.push(stream);
    }
    // Each of these takes the place of the oldest, so that nobody is locked out.
    for _ in 0..2 {
        let heard = site.ask(&Speaker::default(), "").await.unwrap();
        assert_eq!(heard.status, 200);
    }
    assert_eq!(said(&mut held[0]).await, b"");
}

#[tokio::test]
async fn a_handshake_has_a_deadline() {
    let site = Site::start(|_| String::new()).await;
    let mut silent = site.dial().await;
    let mut slow = site.dial().await;
    slow.write_all(&[22, 3, 1, 1, 0, 1]).await.unwrap();
    let began = tokio::time::Instant::now();
    tokio::time::pause();
    assert_eq!(said(&mut silent).await, b"");
    assert_eq!(said(&mut slow).await, b"");
    let after = began.elapsed();
    assert!(
        (Duration::from_secs(9)..Duration::from_secs(30)).contains(&after),
        "{after:?}"
    );
}

#[tokio::test]
async fn whoever_is_over_the_limits_gets_an_alert() {
    let site = Site::start(|_| "[limits]\nconnections = 1\n".to_owned()).await;
    let mut first = site.connect(&Speaker::default()).await.unwrap();
    assert_eq!(exchange(&mut first, "").await.unwrap().status, 200);
    let refused = site.connect(&Speaker::default()).await.unwrap_err();
    assert!(refused.to_string().contains("InternalError"), "{refused}");
    // It does not go on at the cost of those who are there.
    assert_eq!(exchange(&mut first, "").await.unwrap().status, 200);
}

#[tokio::test]
async fn nonsense_and_half_closed_connections_are_nobody_elses_problem() {
    let site = Site::start(|_| String::new()).await;
    for nonsense in [
        &b"\0\0\0\0"[..],
        b"SSH-2.0-x\r\n",
        &[0x80, 0x2e, 1, 3, 1],
        &[22; 4096],
    ] {
        let mut stream = site.dial().await;
        stream.write_all(nonsense).await.unwrap();
        stream.shutdown().await.unwrap();
        said(&mut stream).await;
    }
    // A client that says that it will write no more, while its request is answered.
    let mut stream = site.connect(&Speaker::default()).await.unwrap();
    let mut half = site.connect(&Speaker::default()).await.unwrap();
    half.write_all(b"POST /mcp/s HTTP/1.1\r\nhost: localhost\r\n")
        .await
        .unwrap();
    half.shutdown().await.unwrap();
    assert_eq!(exchange(&mut stream, "").await.unwrap().status, 200);
}
