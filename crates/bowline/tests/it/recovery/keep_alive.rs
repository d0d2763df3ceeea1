//! A server may close an idle connection just as a request leaves. A request of which nothing was
//! written goes over another connection; of any other it is not known whether it ran, whatever the
//! end of the connection looks like.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::distant::Distant;
use bowline_testbed::faulty::{Fault, Faulty, When};
use bowline_testbed::haproxy::Haproxy;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;

const SESSIONS: u64 = 3;

const CALLS: u64 = 170;

/// A number between 0 and `below` that depends on nothing but these.
fn dice(session: u64, call: u64, below: u64) -> u64 {
    let mixed = (session * CALLS + call + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 33) % below
}

/// What came of unsafe calls over connections that die.
#[derive(Debug)]
struct Dying {
    closed: u64,
    /// Calls whose outcome was told to be unknown, and those of them that had run.
    unknown: u64,
    of_them_ran: u64,
}

/// Unsafe calls after rests of up to 50 ms, to a server that closes connections after rests of up to
/// 50 ms and is so far away.
async fn call_over_dying_connections(latency: Duration) -> Dying {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    server.close_idle_connections(Duration::from_millis(50), 4);
    let way = Distant::start(server.address(), latency).await.unwrap();
    let url = match latency {
        Duration::ZERO => server.url(),
        _ => way.url(),
    };
    let gateway = Gateway::start(config(&[("s", &url)])).await.unwrap();
    let mut sessions = JoinSet::new();
    for session in 0..SESSIONS {
        let mut client = Client::new(&gateway);
        sessions.spawn(async move {
            let mut unknown = Vec::new();
            assert_eq!(client.begin().await.status, 200);
            for call in 0..CALLS {
                let pause = dice(session, call, 50_000);
                tokio::time::sleep(Duration::from_micros(pause)).await;
                let key = format!("{session} {call}");
                let answer = client.call(call, "bump", &json!({"key": key})).await;
                match answer.failure() {
                    None => assert_eq!(answer.status, 200),
                    Some(code) => {
                        assert_eq!(code, -31001, "{answer:?}");
                        unknown.push(key);
                    }
                }
            }
            unknown
        });
    }
    let mut unknown = Vec::new();
    while let Some(ended) = sessions.join_next().await {
        unknown.extend(ended.unwrap());
    }
    let ran = tally.all();
    assert!(ran.values().all(|executions| executions.len() == 1));
    let (all, unknown_count) = (SESSIONS * CALLS, unknown.len() as u64);
    let of_them_ran = unknown.iter().filter(|key| ran.contains_key(*key)).count() as u64;
    assert_eq!(ran.len() as u64, all - unknown_count + of_them_ran);
    Dying {
        closed: server.closed_idle(),
        unknown: unknown_count,
        of_them_ran,
    }
}

/// The numbers in docs/reliability.md are what this prints.
#[tokio::test(flavor = "multi_thread")]
async fn calls_over_connections_that_die_at_random_moments_run_once_or_are_told_unknown() {
    for latency in [0, 5, 20] {
        let told = call_over_dying_connections(Duration::from_millis(latency)).await;
        let all = SESSIONS * CALLS;
        let Dying {
            closed,
            unknown,
            of_them_ran,
        } = told;
        println!(
            "server {latency} ms away, {closed} connections closed: {unknown} of {all} unsafe calls unknown, {of_them_ran} of them ran"
        );
        assert!(closed > 50, "only {closed} were closed");
    }
}

/// The proxy ends the connection in order and resets it then, although the server has run the call:
/// the end of a connection that looks as if nobody had read the request.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_a_proxy_ends_as_if_nobody_had_read_it_does_not_run_twice() {
    let tally = Tally::default();
    let server = Counting::start("r", &tally).await.unwrap();
    let resetting = Faulty::start(server.address()).await.unwrap();
    let proxy = Haproxy::passing(resetting.address()).await.unwrap();
    let gateway = gateway(proxy.url()).await;
    for round in 0..3 {
        let mut client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
        let key = format!("round {round}");
        resetting.next(1, When::tool("bump"), Fault::ResetAfter);
        let answer = client.call(1, "bump", &json!({"key": key})).await;
        assert_eq!(answer.failure(), Some(-31001), "{answer:?}");
        assert_eq!(tally.executions(&key), 1);
    }
}

/// Reads one request from a connection; its JSON-RPC id.
async fn read_request(stream: &mut TcpStream) -> Option<serde_json::Value> {
    let mut text = String::new();
    loop {
        let mut bytes = [0; 4096];
        let read = stream
            .read(&mut bytes)
            .await
            .ok()
            .filter(|read| *read > 0)?;
        text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
        if let Some(message) = body.and_then(|body| serde_json::from_str(body).ok()) {
            let message: serde_json::Value = message;
            return Some(message["id"].clone());
        }
    }
}

async fn answer(stream: &mut TcpStream, id: &serde_json::Value, result: &serde_json::Value) {
    let body = json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string();
    let length = body.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    stream
        .write_all([head, body].concat().as_bytes())
        .await
        .unwrap();
}

#[tokio::test]
async fn the_connection_that_was_used_last_is_used_next() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = gateway(&format!("http://{}/mcp", listener.local_addr().unwrap())).await;
    let mut client = Client::new(&gateway);
    let (_, mut first) = tokio::join!(client.initialize(), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let id = read_request(&mut stream).await.unwrap();
        answer(
            &mut stream,
            &id,
            &bowline_testbed::scripted::initialize_result_without_tools(),
        )
        .await;
        stream
    });
    // Two calls at once need two connections; the second is given back last.
    let (one, two) = (call(1), call(2));
    let send_one = client.send(&one);
    let (mut second, _) = {
        let mut send_one = std::pin::pin!(send_one);
        let id = tokio::select! {
            _ = &mut send_one => panic!("nobody has answered"),
            id = read_request(&mut first) => id.unwrap(),
        };
        let ((), second) = tokio::join!(async { assert_eq!(send_one.await.status, 200) }, async {
            let (sent, second) = tokio::join!(client.send(&two), async {
                let (mut second, _) = listener.accept().await.unwrap();
                let second_id = read_request(&mut second).await.unwrap();
                answer(&mut first, &id, &json!({})).await;
                // The first has been given back when its caller has its answer.
                tokio::time::sleep(Duration::from_millis(50)).await;
                answer(&mut second, &second_id, &json!({})).await;
                second
            });
            assert_eq!(sent.status, 200);
            second
        });
        (second, ())
    };
    for id in 3..6 {
        let message = call(id);
        let (sent, ()) = tokio::join!(client.send(&message), async {
            let id = tokio::select! {
                id = read_request(&mut second) => id.unwrap(),
                _ = read_request(&mut first) => panic!("the one that rests for longer"),
            };
            answer(&mut second, &id, &json!({})).await;
        });
        assert_eq!(sent.status, 200);
    }
}

#[tokio::test]
async fn a_connection_that_died_before_anything_was_written_is_replaced() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = gateway(&format!("http://{}/mcp", listener.local_addr().unwrap())).await;
    let mut client = Client::new(&gateway);
    let (_, first) = tokio::join!(client.initialize(), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let id = read_request(&mut stream).await.unwrap();
        answer(
            &mut stream,
            &id,
            &bowline_testbed::scripted::initialize_result_without_tools(),
        )
        .await;
        stream
    });
    // On this machine the other side knows of it when this returns.
    drop(first);
    let message = call(1);
    let (sent, ()) = tokio::join!(client.send(&message), async {
        let (mut second, _) = listener.accept().await.unwrap();
        let id = read_request(&mut second).await.unwrap();
        answer(&mut second, &id, &json!({})).await;
    });
    assert_eq!(sent.status, 200, "{}", sent.text);
}
