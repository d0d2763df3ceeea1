//! Clients that do not read, before servers of which one channel carries all answers: a process, or one of HTTP+SSE.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline::Gateway;
use bowline::config::Transport;
use bowline_testbed::scripted::initialize_result;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::bounds::{answer, unread};
use crate::kit::client::Client;
use crate::kit::gateway::{config, only};
use crate::kit::log::Log;
use crate::kit::messages::ready;
use crate::kit::programs::{Tally, command, config_of};
use crate::kit::sse::{REVISION, Sse};
use crate::kit::wait::until;
use crate::kit::wired::{call_of, initialize};

const CALLS: usize = 100;
const LARGE: usize = 1 << 20;
/// Far less than all answers, and more than may wait with what is on its way.
const BOUND: usize = 48 << 20;

/// A server of HTTP+SSE with calls under way of a client that does not read.
struct Stage {
    gateway: Gateway,
    reader: TcpStream,
    client: Client,
    /// What the server writes to.
    stream: TcpStream,
    /// What accepts messages.
    _posts: JoinSet<()>,
}

impl Stage {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let mut config = config(&[("s", &url)]);
        only(&mut config).transport = Transport::Sse;
        let gateway = Gateway::start(config).await.unwrap();
        let (reader, client) = unread(&gateway).await;
        let begin = initialize(REVISION, &json!({}));
        assert_eq!(client.send(&begin).await.status, 202);
        let events = "content-type: text/event-stream";
        let mut stream = answer(&listener, 200, events, None).await;
        let result = json!({"jsonrpc": "2.0", "id": "init", "result": initialize_result()});
        let endpoint = b"event: endpoint\ndata: /m\n\n";
        stream.write_all(endpoint).await.unwrap();
        drop(answer(&listener, 202, "x: y", Some("")).await);
        let opened = format!("data: {result}\n\n");
        stream.write_all(opened.as_bytes()).await.unwrap();
        let (mut posts, accepted) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&accepted);
        posts.spawn(async move {
            loop {
                drop(answer(&listener, 202, "x: y", Some("")).await);
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(client.send(&ready()).await.status, 202);
        for id in 0..CALLS {
            let call = call_of(id, "t", &json!({}));
            assert_eq!(client.send(&call).await.status, 202);
        }
        // An answer before its call would be nobody's. The gateway lists the tools by itself.
        let all = CALLS + 2;
        until("the server has all calls", || {
            accepted.load(Ordering::Relaxed) == all
        })
        .await;
        Self {
            gateway,
            reader,
            client,
            stream,
            _posts: posts,
        }
    }

    /// Answers the calls from `first` on, until the stream is not read; how many were written.
    async fn flood(&mut self, first: usize, patience: Duration) -> usize {
        for id in first..CALLS {
            let result = json!({"jsonrpc": "2.0", "id": id, "result": {"x": "x".repeat(LARGE)}});
            let event = format!("data: {result}\n\n");
            let write = self.stream.write_all(event.as_bytes());
            match tokio::time::timeout(patience, write).await {
                Ok(written) => written.unwrap(),
                Err(_) => return id,
            }
        }
        CALLS
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_http_sse_is_held_back_and_nobody_else() {
    let mut stage = Stage::open().await;
    let written = stage.flood(0, Duration::from_secs(2)).await;
    assert!(
        written * LARGE < BOUND,
        "{written} answers wait for a client that does not read"
    );
    // Its messages are still accepted, and another client comes.
    assert_eq!(stage.client.send(&ready()).await.status, 202);
    drop(unread(&stage.gateway).await);
}

/// Reads on; every answer comes once.
async fn read_all(reader: &mut TcpStream) -> Vec<usize> {
    let (mut text, mut part) = (Vec::new(), vec![0; 1 << 20]);
    let mut ids = Vec::new();
    while ids.len() < CALLS {
        let reading = tokio::time::timeout(Duration::from_secs(60), reader.read(&mut part)).await;
        let count = reading.expect("more in time").unwrap();
        assert!(count > 0, "the stream has ended after {}", ids.len());
        text.extend_from_slice(&part[..count]);
        while let Some(end) = text.windows(2).position(|end| end == b"\n\n") {
            let event: Vec<u8> = text.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let id = event.split_once("\"id\":").and_then(|(_, rest)| {
                let mut digits = rest.split(|char: char| !char.is_ascii_digit());
                digits.next()?.parse::<usize>().ok()
            });
            ids.extend(id);
        }
    }
    ids.sort_unstable();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_held_back_and_no_answer_is_lost() {
    let tally = Tally::default();
    let gateway = Gateway::start(config_of(command(&tally.path()))).await;
    let gateway = gateway.unwrap();
    let (mut reader, client) = unread(&gateway).await;
    let begin = initialize(REVISION, &json!({}));
    assert_eq!(client.send(&begin).await.status, 202);
    assert_eq!(client.send(&ready()).await.status, 202);
    for id in 0..CALLS {
        let large = call_of(id, "large", &json!({"bytes": LARGE}));
        assert_eq!(client.send(&large).await.status, 202);
    }
    until("it is started", || tally.starts() == 1).await;
    let path = format!("/proc/{}/io", tally.pids()[0]);
    let written = || -> usize {
        let io = std::fs::read_to_string(&path).unwrap();
        let line = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        line.unwrap().parse().unwrap()
    };
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = written();
        if now == before && now > LARGE {
            break;
        }
        before = now;
    }
    assert!(before < BOUND, "the process wrote {before} bytes");
    // Another session has a process of its own.
    let mut other = Sse::open(&gateway).await;
    other.begin().await;
    let answer = other.ask(&call_of("o", "bump", &json!({"key": "o"}))).await;
    assert!(answer["result"].is_object(), "{answer}");
    let ids = read_all(&mut reader).await;
    assert_eq!(ids, (0..CALLS).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_stream() {
    let log = Log::default();
    let _keeping = log.keep();
    let mut stage = Stage::open().await;
    let written = stage.flood(0, Duration::from_secs(2)).await;
    assert!(written < CALLS);
    // Nothing moves but timers.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(90)).await;
    tokio::time::resume();
    until("it is told", || log.contains("does not read its stream")).await;
    let late = stage.client.send(&ready()).await;
    assert_eq!(late.status, 404, "{}", late.text);
    let mut part = vec![0; 1 << 20];
    loop {
        let reading = tokio::time::timeout(Duration::from_secs(60), stage.reader.read(&mut part));
        match reading.await.expect("an end in time") {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
}
