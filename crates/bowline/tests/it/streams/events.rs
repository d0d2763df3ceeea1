//! Streams: flushed at once, marked, resumable, taken over, and never ended by a client's leaving.

use bowline::Gateway;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket};

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::call;
use crate::kit::opened::opened;

#[tokio::test]
async fn headers_are_flushed_before_any_event() {
    let (_gateway, mut server, client) = opened().await;
    for request in [client.get(), client.post(&call(1))] {
        // The server writes nothing, and still the client has its head.
        let (events, _pen) = client.open_stream(&mut server, request).await;
        assert_eq!(events.response.headers()["x-accel-buffering"], "no");
        assert!(
            events.response.headers()["cache-control"]
                .to_str()
                .unwrap()
                .contains("no-cache")
        );
    }
}

#[tokio::test]
async fn get_is_served_over_a_server_that_answers_with_its_first_event_or_never() {
    let (_gateway, mut server, client) = opened().await;
    let mut events = Events::new(client.get().send().await.unwrap());
    let mut pen = server.next().await.events();
    pen.write("data: 1\n\n");
    assert_eq!(events.next().await, "data: 1\n\n");
}

#[tokio::test]
async fn event_ids_are_marks_and_come_back_as_the_servers_own() {
    let (_gateway, mut server, client) = opened().await;
    for request in [client.get(), client.post(&call("r"))] {
        let (mut events, mut pen) = client.open_stream(&mut server, request).await;
        pen.write("id: u/stream=7\ndata: {}\n\n");
        let (mark, _) = events.next_message().await;
        let mark = mark.unwrap();
        assert!(!mark.contains("u/stream"), "{mark}");
        drop((events, pen));
        let resumed = client.get().header("last-event-id", &mark);
        let (resumed, asked) = tokio::join!(resumed.send(), server.next());
        assert_eq!(asked.header("last-event-id"), "u/stream=7");
        let mut pen = asked.events();
        let mut resumed = Events::new(resumed.unwrap());
        pen.write("id: u/stream=8\ndata: {}\n\n");
        assert_ne!(resumed.next_message().await.0.unwrap(), mark);
    }
    for forged in ["u/stream=7", "AAAA", "*"] {
        let refused = client
            .get()
            .header("last-event-id", forged)
            .send()
            .await
            .unwrap();
        assert_eq!(refused.status(), 400);
    }
    server.finish();
}

#[tokio::test]
async fn a_servers_request_is_marked_answered_and_cancelled_under_one_id() {
    let (_gateway, mut server, client) = opened().await;
    for own_id in [json!(42), json!("forty-two")] {
        let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
        let ask = json!({"jsonrpc": "2.0", "id": own_id, "method": "roots/list"});
        pen.write(format!("data: {ask}\n\n"));
        let (_, shown) = events.next_message().await;
        assert_ne!(shown["id"], own_id);
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own_id}});
        pen.write(format!("data: {cancel}\n\n"));
        let (_, cancelled) = events.next_message().await;
        assert_eq!(cancelled["params"]["requestId"], shown["id"]);

        let answer = json!({"jsonrpc": "2.0", "id": shown["id"], "result": {"roots": []}});
        let accepted = client.send_to(&mut server, &answer, |asked| {
            assert_eq!(asked.json()["id"], own_id);
            asked.reply(202, &[], "");
        });
        assert_eq!(accepted.await.status, 202);
    }
    let made_up = json!({"jsonrpc": "2.0", "id": 42, "result": {}});
    assert_eq!(client.send(&made_up).await.status, 400);
    server.finish();
}

#[tokio::test]
async fn another_sessions_marks_are_worth_nothing() {
    let (gateway, mut server, client) = opened().await;
    let other = Client::open(&gateway, &mut server, "v").await;
    let (mut events, mut pen) = client.open_stream(&mut server, client.get()).await;
    pen.write("id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n");
    let (mark, ask) = events.next_message().await;
    let answer = json!({"jsonrpc": "2.0", "id": ask["id"], "result": {}});
    assert_eq!(other.send(&answer).await.status, 400);
    let resumed = other
        .get()
        .header("last-event-id", mark.unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(resumed.status(), 400);
    server.finish();
}

#[tokio::test]
async fn a_second_get_takes_over_from_the_first() {
    let (_gateway, mut server, client) = opened().await;
    let (first, first_pen) = client.open_stream(&mut server, client.get()).await;
    let (second, asked) = tokio::join!(client.get().send(), server.next());
    // The server saw the old stream end before it was asked for the new one.
    first_pen.closed().await;
    first.ends_cleanly().await;
    let mut pen = asked.events();
    let mut second = Events::new(second.unwrap());
    pen.write("data: x\n\n");
    assert_eq!(second.next().await, "data: x\n\n");
}

#[tokio::test]
async fn a_server_that_is_slow_to_notice_is_asked_again() {
    let (_gateway, mut server, client) = opened().await;
    let (second, mut pen) = tokio::join!(client.get().send(), async {
        server.next().await.reply(409, &[], "");
        server.next().await.reply(409, &[], "");
        server.next().await.events()
    });
    let mut second = Events::new(second.unwrap());
    pen.write("data: x\n\n");
    assert_eq!(second.next().await, "data: x\n\n");
}

#[tokio::test]
async fn leaving_cancels_nothing_that_was_sent() {
    let (gateway, mut server, client) = opened().await;
    // Nothing has come back yet: the request goes on, and its answer is taken.
    let waiting = tokio::time::timeout(
        std::time::Duration::from_millis(100),
        client.post(&call(1)).send(),
    );
    let (left, asked) = tokio::join!(waiting, server.next());
    assert!(left.is_err());
    // A stream without event ids cannot be resumed: it is read to its end.
    let (deaf, deaf_pen) = client.open_stream(&mut server, client.post(&call(2))).await;
    // A stream with event ids can: it is closed.
    let (mut heard, mut heard_pen) = client.open_stream(&mut server, client.post(&call(3))).await;
    heard_pen.write("id: 1\ndata: \n\n");
    heard.next().await;
    drop((deaf, heard));
    heard_pen.closed().await;

    let pen = asked.events();
    for id in 10..20 {
        let ping = call(id);
        let pinged = client.send_to(&mut server, &ping, |asked| asked.result(&json!({})));
        assert_eq!(pinged.await.status, 200);
    }
    assert!(pen.is_open() && deaf_pen.is_open());

    // What ends the session ends them, too.
    client.delete().send().await.unwrap();
    pen.closed().await;
    deaf_pen.closed().await;
    drop(gateway);
}

#[tokio::test]
async fn what_was_not_sent_is_dropped_with_its_client() {
    // A server that takes connections and never says a word of TLS: nothing can be sent.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/mcp", listener.local_addr().unwrap());
    let gateway = Gateway::start(config(&[("s", &url)])).await.unwrap();
    let client = Client::new(&gateway);
    let request = client.post(&crate::kit::messages::initialize_message());
    let sending = tokio::task::JoinSet::from_iter([request.send()]);
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut hello = [0; 16];
    stream.read_exact(&mut hello).await.unwrap();
    drop(sending);
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    closed.expect("the connection to be given up").unwrap();
}

#[tokio::test]
async fn a_session_that_nobody_heard_of_is_ended() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = Client::new(&gateway);
    let request = client.post(&crate::kit::messages::initialize_message());
    let sending = tokio::task::JoinSet::from_iter([request.send()]);
    let asked = server.next().await;
    drop(sending);
    // The gateway's connection to the client ends before the server answers.
    gateway_noticed(&gateway, &mut server).await;
    asked.initialized(Some("orphan"));
    let deleted = server.next().await;
    assert_eq!(
        (deleted.method.as_str(), deleted.header("mcp-session-id")),
        ("DELETE", "orphan")
    );
}

/// Passes once the gateway has seen everything that happened on its sockets before this call.
async fn gateway_noticed(gateway: &Gateway, server: &mut Scripted) {
    for _ in 0..5 {
        let client = Client::open(gateway, server, "other").await;
        drop(client);
    }
}

/// What was asked may have run, so the client hears that nobody knows, and no half event.
#[tokio::test]
async fn an_answer_that_breaks_off_leaves_the_outcome_unknown() {
    for clean in [false, true] {
        let (_gateway, mut server, client) = opened().await;
        let (mut events, mut pen) = client.open_stream(&mut server, client.post(&call(1))).await;
        pen.write("data: whole\n\ndata: ha");
        assert_eq!(events.next().await, "data: whole\n\n");
        match clean {
            true => drop(pen),
            false => pen.cut(),
        }
        let (_, told) = events.next_message().await;
        assert_eq!(
            (&told["id"], &told["error"]["code"]),
            (&json!(1), &json!(-31001))
        );
        events.ends_cleanly().await;
    }
}

/// A reader that does not read holds back the server, and nothing piles up in the gateway.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_is_backpressure() {
    const TOTAL: usize = 96 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let gateway = Gateway::start(config(&[("s", &url)])).await.unwrap();
    let mut client = Client::new(&gateway);
    let head = "HTTP/1.1 200 OK\r\nmcp-session-id: u\r\n";
    tokio::join!(client.initialize(), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
        let body = json!({"jsonrpc": "2.0", "id": "init", "result": bowline_testbed::scripted::initialize_result()}).to_string();
        let length = body.len();
        let answer = format!(
            "{head}content-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
    });

    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(64 << 10).unwrap();
    let mut reader = socket
        .connect(gateway.listen().tcp().unwrap())
        .await
        .unwrap();
    let id = client.session.as_ref().unwrap().to_str().unwrap();
    let get = format!(
        "GET /mcp/s HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\nmcp-session-id: {id}\r\nconnection: close\r\n\r\n"
    );
    reader.write_all(get.as_bytes()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let event = format!("data: {}\n\n", "x".repeat((64 << 10) - 8));
    let mut written = 0;
    while written < TOTAL {
        let write = stream.write_all(event.as_bytes());
        if tokio::time::timeout(std::time::Duration::from_secs(1), write)
            .await
            .is_err()
        {
            break;
        }
        written += event.len();
    }
    assert!(
        written < TOTAL / 2,
        "the server was never held back: {written} bytes"
    );
    drop(stream);
    // What was written in whole is not lost. (The write that was held back may have been cut.)
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < written
        && let Ok(read @ 1..) = reader.read(&mut buffer).await
    {
        received += read;
    }
    assert!(received >= written, "{received} of {written}");
}

#[tokio::test]
async fn the_clients_own_cancellation_passes_as_it_is() {
    let (_gateway, mut server, client) = opened().await;
    let cancel: Value = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "reason": "r"}});
    let expected = cancel.clone();
    let accepted = client.send_to(&mut server, &cancel, move |asked| {
        assert_eq!(asked.json(), expected);
        asked.reply(202, &[], "");
    });
    let accepted = accepted.await;
    assert_eq!(
        (accepted.status.as_u16(), accepted.text.as_str()),
        (202, "")
    );
}
