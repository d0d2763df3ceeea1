//! Answers that are odd to the byte: bodies that only the connection's end delimits, answers that are none, and
//! answers where nobody waits for them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::kit::client::Client;
use crate::kit::events::Events;
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{JSON, call, list};
use crate::kit::opened::opened;
use crate::kit::stores::in_file;

pub(super) const OWN: &str =
    r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"no such row"}}"#;

// === A server that writes calls' answers byte by byte, and closes.

struct Raw {
    url: String,
    calls: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Raw {
    async fn start(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut conversations = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                conversations.spawn(converse(stream, answer.clone(), Arc::clone(&counted)));
            }
        });
        Self {
            url,
            calls,
            _tasks: tasks,
        }
    }
}

async fn converse(mut stream: TcpStream, answer: String, calls: Arc<AtomicUsize>) {
    let mut input = Vec::new();
    while let Some((message, used)) = next_message(&mut stream, &mut input).await {
        input.drain(..used);
        let whole = |body: String| {
            let length = body.len();
            format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nmcp-session-id: u1\r\ncontent-length: {length}\r\n\r\n{body}"
            )
        };
        let result = |result: Value| {
            whole(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string())
        };
        let (text, closes) = match message["method"].as_str() {
            Some("initialize") => (result(initialize_result()), false),
            Some("ping") => (result(json!({})), false),
            Some("tools/call") => {
                calls.fetch_add(1, Ordering::SeqCst);
                (answer.clone(), true)
            }
            _ => (
                "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n".to_owned(),
                false,
            ),
        };
        stream.write_all(text.as_bytes()).await.unwrap();
        if closes {
            return;
        }
    }
}

/// The body of the next request, and how many bytes the request has.
async fn next_message(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<(Value, usize)> {
    loop {
        let text = String::from_utf8_lossy(input).to_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text[..end].split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.trim().parse().ok());
            let (from, length) = (end + 4, length.unwrap_or(0_usize));
            if input.len() >= from + length {
                let message = serde_json::from_slice(&input[from..from + length]);
                return Some((message.unwrap_or_default(), from + length));
            }
        }
        if stream.read_buf(input).await.ok()? == 0 {
            return None;
        }
    }
}

#[tokio::test]
async fn what_only_the_end_of_its_connection_delimits_is_not_taken_for_whole() {
    let head = "content-type: application/json\r\nconnection: close\r\n\r\n";
    let cut = &OWN[..50];
    let half = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"he"#;
    let nested = r#"{"jsonrpc":"2.0","result":{"row":{"x":1,"id":7}"#;
    for answer in [
        format!("HTTP/1.1 404 Not Found\r\n{head}{cut}"),
        format!("HTTP/1.0 404 Not Found\r\n{head}{cut}"),
        format!("HTTP/1.1 404 Not Found\r\n{head}"),
        format!("HTTP/1.1 400 Bad Request\r\n{head}{cut}"),
        format!("HTTP/1.1 410 Gone\r\n{head}{cut}"),
        format!("HTTP/1.1 200 OK\r\n{head}{half}"),
        format!("HTTP/1.1 200 OK\r\n{head}{nested}"),
        format!(
            "HTTP/1.1 404 Not Found\r\ntransfer-encoding: gzip, chunked\r\n{head}3\r\nabc\r\n0\r\n\r\n"
        ),
    ] {
        let server = Raw::start(answer.clone()).await;
        let gateway = gateway(&server.url).await;
        let mut client = Client::new(&gateway);
        client.initialize().await;
        let told = client.send(&call(7)).await;
        assert_eq!(
            (told.status.as_u16(), told.code()),
            (200, -31001),
            "{answer}"
        );
        assert_eq!(server.calls.load(Ordering::SeqCst), 1, "{answer}");
    }
    // The same answers, whole.
    for (answer, told) in [
        (format!("HTTP/1.1 404 Not Found\r\n{head}{OWN}"), OWN),
        (format!("HTTP/1.0 200 OK\r\n{head}{OWN} "), OWN),
    ] {
        let server = Raw::start(answer.clone()).await;
        let gateway = gateway(&server.url).await;
        let mut client = Client::new(&gateway);
        client.initialize().await;
        let heard = client.send(&call(7)).await;
        assert_eq!((heard.status.as_u16(), heard.text.trim()), (200, told));
        assert_eq!(server.calls.load(Ordering::SeqCst), 1);
    }
}

// === Answers that are none, or another's

#[tokio::test]
async fn a_202_is_no_answer_to_a_request() {
    for message in [call(7), list(7)] {
        let (_gateway, mut server, client) = opened().await;
        let (answer, ()) = tokio::join!(client.send(&message), async {
            server.next().await.reply(202, &[], "");
        });
        assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
        server.finish();
    }
}

#[tokio::test]
async fn a_request_is_not_taken_for_an_answer() {
    let (_gateway, mut server, client) = opened().await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let body = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}"#;
        server.next().await.reply(200, &[JSON], body);
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
}

#[tokio::test]
async fn answers_to_others_do_not_pass_in_a_batch_nor_twice() {
    let result = |id: u32| json!({"jsonrpc": "2.0", "id": id, "result": {}});
    let (_gateway, mut server, client) = opened().await;
    let message = call(7);
    let (answer, ()) = tokio::join!(client.send(&message), async {
        let mut pen = server.next().await.events();
        pen.write(format!("data: {}\n\n", json!([result(8)])));
        pen.write(format!("data: {}\n\n", json!([result(9), result(7)])));
        pen.write(format!("data: {}\n\n", result(7)));
    });
    assert_eq!(answer.text, format!("data: {}\n\n", result(7)));
}

#[tokio::test]
async fn no_answer_passes_on_the_stream_of_a_get() {
    let (_gateway, mut server, client) = opened().await;
    let listening = async {
        Events::new(client.get().send().await.unwrap())
            .next_message()
            .await
            .1
    };
    let (heard, _pen) = tokio::join!(listening, async {
        let mut pen = server.next().await.events();
        pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n\n");
        pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"news\"}\n\n");
        pen
    });
    assert_eq!(heard["method"], "news");
}

#[tokio::test]
async fn a_get_that_is_answered_with_a_page_is_silent() {
    for status in [200, 204, 404] {
        let (_gateway, mut server, client) = opened().await;
        let getting = client.get().send();
        let (response, ()) = tokio::join!(getting, async {
            server
                .next()
                .await
                .reply(status, &[("content-type", "text/html")], "");
            if status == 404 {
                server.next().await.result(&json!({}));
            }
        });
        assert_eq!(response.unwrap().status(), 200, "{status}");
    }
}

// === What may be said again

/// The next that is not a ping; those are answered.
pub(super) async fn next_but_pings(server: &mut Scripted) -> Asked {
    loop {
        let asked = server.next().await;
        match asked.rpc_method().as_str() {
            "ping" => asked.result(&json!({})),
            _ => return asked,
        }
    }
}

#[tokio::test]
async fn what_may_be_heard_twice_is_said_again_when_its_connection_breaks() {
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let rooted = json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"});
    for message in [initialized, rooted] {
        let (_gateway, mut server, client) = opened().await;
        let (answer, ()) = tokio::join!(client.send(&message), async {
            drop(next_but_pings(&mut server).await);
            let again = next_but_pings(&mut server).await;
            assert_eq!(again.json(), message);
            again.reply(202, &[], "");
        });
        assert_eq!(answer.status, 202);
    }
}

#[tokio::test]
async fn the_rest_of_an_answer_is_asked_for_until_there_is_no_time_left() {
    let (_gateway, mut server, client) = opened().await;
    let calling = async {
        let mut events = Events::new(client.post(&call(7)).send().await.unwrap());
        loop {
            let (_, message) = events.next_message().await;
            if message["id"] == 7 {
                break message;
            }
        }
    };
    let (answer, ()) = tokio::join!(calling, async {
        let mut pen = server.next().await.events();
        pen.write("id: e1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"news\"}\n\n");
        pen.cut();
        for attempt in 0..3 {
            let asked = next_but_pings(&mut server).await;
            assert_eq!(
                (&asked.method, asked.header("last-event-id")),
                (&Method::GET, "e1")
            );
            match attempt {
                0 => asked.reply(503, &[("retry-after", "1")], ""),
                1 => drop(asked),
                _ => {
                    let mut pen = asked.events();
                    pen.write("data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n");
                }
            }
        }
    });
    assert_eq!(answer["result"], json!({}));
}

#[tokio::test]
async fn a_hint_that_was_taken_back_stays_taken_back_when_the_gateway_dies() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Scripted::start().await;
    let start = async |url: String, state: &Path| {
        let mut config = config(&[("s", &url)]);
        config.store = in_file(state);
        Gateway::start(config).await.unwrap()
    };
    let state = directory.path().join("state");
    let gateway = start(server.url().to_owned(), &state).await;
    let client = Client::open(&gateway, &mut server, "u1").await;
    let tools =
        |hints: Value| json!({"tools": [{"name": "t", "inputSchema": {}, "annotations": hints}]});
    for hints in [
        json!({"readOnlyHint": true}),
        json!({"readOnlyHint": false}),
    ] {
        client
            .send_to(&mut server, &list(1), |asked| asked.result(&tools(hints)))
            .await;
    }
    // What the store has now is all that a killed gateway leaves.
    let copy = directory.path().join("copy");
    copy_directory(&state, &copy);
    drop(gateway);
    let restarted = start(server.url().to_owned(), &copy).await;
    let mut again = Client::new(&restarted);
    again.session.clone_from(&client.session);
    let message = call(7);
    let (answer, ()) = tokio::join!(again.send(&message), async {
        next_but_pings(&mut server)
            .await
            .begin(200, &[("content-length", "5")])
            .cut();
    });
    assert_eq!((answer.status.as_u16(), answer.code()), (200, -31001));
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}
