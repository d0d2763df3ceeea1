//! What a client cannot do.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::scripted::{Scripted, initialize_result};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::conversations::begin;
use crate::kit::client::{Client, sent};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, ready};
use crate::kit::sse::{REVISION, Sse, opened};
use crate::kit::wait::until_so;
use crate::kit::wired::{call_of, initialize};

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = Counting::start("r", &Tally::default()).await.unwrap();
    let mut config = config(&[("s", &server.url())]);
    config.limits.body_bytes = 100 * 1024;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.begin().await;
    let long = call_of("long", "bump", &json!({"key": "x".repeat(1024 * 1024)}));
    let refused = client.send(&long).await;
    assert_eq!(refused.status, 413, "{}", refused.text);
    let fits = call_of("fits", "bump", &json!({"key": "x".repeat(90 * 1024)}));
    assert!(client.ask(&fits).await["result"].is_object());
}

#[tokio::test]
async fn requests_under_way_are_limited_and_answers_still_get_through() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 6;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    client.say(&initialize(REVISION, &json!({}))).await;
    server.next().await.initialized(Some("u1"));
    client.answer_to(&json!("init")).await;
    for id in 0..6 {
        client.say(&call(id)).await;
    }
    let refused = client.send(&call(6)).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert_eq!(refused.json()["id"], 6);
    assert!(refused.headers.contains_key("retry-after"));
    // One place is the stream's own, so one call waits for its turn.
    let first = server.next().await;
    let question = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    let mut pen = first.events();
    pen.write(format!("data: {question}\n\n"));
    let asked = client.hear_of("roots/list").await;
    client
        .say(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}}))
        .await;
    loop {
        let next = server.next().await;
        match next.json().get("method") {
            Some(_) => next.result(&json!({})),
            None => break next.reply(202, &[], ""),
        }
    }
}

#[tokio::test]
async fn streams_count_towards_the_callers_share_until_they_end() {
    let server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 4;
    let gateway = Gateway::start(config).await.unwrap();
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(opened(&gateway, "/sse/s", None).await);
    }
    let client = Client::at(format!("http://{}/sse/s", gateway.listen()));
    let refused = sent(client.get()).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (503, -31005));
    open.pop();
    until_so("a place is free", async || {
        let response = client.get().send().await.unwrap();
        response.status() == 200
    })
    .await;
}

#[tokio::test]
async fn clients_that_do_not_read_block_only_themselves() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.settings(|settings| settings.all_tools = true);
    let gateway = gateway(&server.url()).await;
    let mut stuck = Vec::new();
    for _ in 0..3 {
        let (http, events, endpoint) = opened(&gateway, "/sse/s", None).await;
        let client = Client::at(endpoint.to_string());
        let begin = initialize(REVISION, &json!({}));
        assert_eq!(client.send(&begin).await.status, 202);
        for id in 0..10 {
            // Far more than fits anywhere on the way.
            let key = json!({"key": id.to_string(), "bytes": 2 << 20});
            let large = call_of(id, "large", &key);
            assert_eq!(client.send(&large).await.status, 202);
        }
        stuck.push((http, events));
    }
    let mut other = Sse::open(&gateway).await;
    other.begin().await;
    let answer = other.ask(&call_of("o", "bump", &json!({"key": "o"}))).await;
    assert!(answer["result"].is_object(), "{answer}");
    // Nothing was lost.
    let (_http, mut events) = stuck.pop().unwrap();
    let mut answers = Vec::new();
    while answers.len() < 11 {
        let (_, message) = events.next_message().await;
        answers.push(message);
    }
    assert!(answers.iter().all(|answer| answer["result"].is_object()));
}

/// What is not read is not fetched from the server, either.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_holds_back_its_server() {
    const TOTAL: usize = 96 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let gateway = gateway(&url).await;
    let mut floods = JoinSet::new();
    let mut readers = Vec::new();
    for _ in 0..3 {
        let (reader, client) = unread(&gateway).await;
        readers.push(reader);
        assert_eq!(
            client.send(&initialize(REVISION, &json!({}))).await.status,
            202
        );
        let result = json!({"jsonrpc": "2.0", "id": "init", "result": initialize_result()});
        let (result, json) = (
            result.to_string(),
            "content-type: application/json\r\nmcp-session-id: u",
        );
        drop(answer(&listener, 200, json, Some(&result)).await);
        assert_eq!(client.send(&ready()).await.status, 202);
        drop(answer(&listener, 202, "x: y", Some("")).await);
        let events = "content-type: text/event-stream";
        let mut stream = answer(&listener, 200, events, None).await;
        floods.spawn(async move {
            let note = json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x".repeat(64 << 10)}});
            let event = format!("data: {note}\n\n");
            let mut written = 0;
            while written < TOTAL {
                let write = stream.write_all(event.as_bytes());
                match tokio::time::timeout(Duration::from_secs(2), write).await {
                    Ok(done) => done.unwrap(),
                    Err(_) => break,
                }
                written += event.len();
            }
            (written, stream)
        });
    }
    for (written, _stream) in floods.join_all().await {
        assert!(
            written < TOTAL / 2,
            "the server was never held back: {written} bytes"
        );
    }
}

/// A stream that is open and never read, and a client for its messages.
pub(super) async fn unread(gateway: &Gateway) -> (TcpStream, Client) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let listen = gateway.listen().tcp().unwrap();
    let mut reader = socket.connect(listen).await.unwrap();
    let get = "GET /sse/s HTTP/1.1\r\nhost: localhost\r\n\r\n";
    reader.write_all(get.as_bytes()).await.unwrap();
    let mut head = String::new();
    let path = loop {
        let mut byte = [0];
        assert_eq!(reader.read(&mut byte).await.unwrap(), 1);
        head.push(char::from(byte[0]));
        if let Some((_, path)) = head.split_once("data: ")
            && let Some(path) = path.strip_suffix('\n')
        {
            break path.to_owned();
        }
    };
    (reader, Client::at(format!("http://{listen}{path}")))
}

/// Answers the next request, on a connection of its own; without a body the connection stays open.
pub(super) async fn answer(
    listener: &TcpListener,
    status: u16,
    headers: &str,
    body: Option<&str>,
) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    let length = body.map_or(String::new(), |body| {
        format!("content-length: {}\r\n", body.len())
    });
    let answer = format!(
        "HTTP/1.1 {status} X\r\n{headers}\r\nconnection: close\r\n{length}\r\n{}",
        body.unwrap_or_default()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn what_a_client_posts_in_a_flood_is_bounded() {
    let mut server = Scripted::start().await;
    let mut config = config(&[("s", server.url())]);
    config.limits.streams = 20;
    let gateway = Gateway::start(config).await.unwrap();
    let mut client = Sse::open(&gateway).await;
    let _listening = begin(&mut server, &mut client, REVISION, "u1").await;
    let mut accepted = 0;
    for id in 0..50 {
        accepted += usize::from(client.send(&call(id)).await.status == 202);
    }
    assert_eq!(accepted, 20);
}
