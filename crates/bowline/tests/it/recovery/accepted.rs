//! What is restored is what the server accepted, however it says so; and how much that may be.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::scripted::{Asked, Scripted, initialize_result};
use serde_json::{Value, json};

use crate::kit::client::{Answer, Client};
use crate::kit::gateway::{config, gateway};
use crate::kit::messages::{call, initialize_message};
use crate::kit::opened::forgot;
use crate::kit::stores::in_file;

/// How a server answers.
#[derive(Debug, Clone, Copy)]
enum Form {
    Json,
    Chunked,
    Events,
    /// Not before a question of the server's own.
    LateEvents,
    /// A JSON array, as in 2025-03-26.
    Array,
}

fn set(method: &str, value: &str) -> Value {
    let name = if method == "logging/setLevel" {
        "level"
    } else {
        "uri"
    };
    json!({"jsonrpc": "2.0", "id": value, "method": method, "params": {name: value}})
}

fn answered(asked: Asked, form: Form, is_accepted: bool) {
    let id = asked.json()["id"].clone();
    let answer = match is_accepted {
        true => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
        false => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32602, "message": "no such thing"}})
        }
    };
    let is_json = [("content-type", "application/json")];
    match form {
        Form::Json => asked.reply(200, &is_json, answer.to_string()),
        Form::Array => asked.reply(200, &is_json, json!([answer]).to_string()),
        Form::Chunked => asked.begin(200, &is_json).write(answer.to_string()),
        Form::Events => asked.events().write(format!("data: {answer}\n\n")),
        Form::LateEvents => {
            let mut pen = asked.events();
            pen.write("data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n");
            tokio_util::task::TaskTracker::new().spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                pen.write(format!("data: {answer}\n\n"));
            });
        }
    }
}

async fn opened_in(gateway: &Gateway, server: &mut Scripted, version: &str) -> Client {
    let mut client = Client::new(gateway);
    let mut opening = initialize_message();
    opening["params"]["protocolVersion"] = version.into();
    let mut result = initialize_result();
    result["protocolVersion"] = version.into();
    let (answer, ()) = tokio::join!(client.send(&opening), async {
        let asked = server.next().await;
        asked.result_with(&[("mcp-session-id", "u1")], &result);
    });
    client.session = answer.headers.get("mcp-session-id").cloned();
    client
}

/// Loses the session, and tells what is set again.
async fn restored(client: &Client, server: &mut Scripted, version: &str) -> Vec<(String, Value)> {
    let mut result = initialize_result();
    result["protocolVersion"] = version.into();
    let message = call("loses");
    let (answer, restored) = tokio::join!(client.send(&message), async {
        forgot(server.next().await);
        let opening = server.next().await;
        opening.result_with(&[("mcp-session-id", "u2")], &result);
        let mut restored = Vec::new();
        loop {
            let asked = server.next().await;
            let message = asked.json();
            asked.result(&json!({}));
            match message["method"].as_str().unwrap() {
                "tools/call" => return restored,
                method => restored.push((method.to_owned(), message["params"].clone())),
            }
        }
    });
    assert_eq!(answer.status, 200);
    restored
}

#[tokio::test]
async fn what_the_server_refused_is_not_restored() {
    let newer = "2025-11-25";
    for (form, version) in [
        (Form::Json, newer),
        (Form::Chunked, newer),
        (Form::Events, newer),
        (Form::LateEvents, newer),
        (Form::Array, "2025-03-26"),
    ] {
        let mut server = Scripted::start().await;
        let gateway = gateway(server.url()).await;
        let client = opened_in(&gateway, &mut server, version).await;
        for (method, value, is_accepted) in [
            ("logging/setLevel", "debug", true),
            ("logging/setLevel", "bogus", false),
            ("resources/subscribe", "a:1", true),
            ("resources/subscribe", "a:2", false),
            ("resources/subscribe", "a:3", true),
            ("resources/unsubscribe", "a:3", true),
            ("resources/unsubscribe", "a:1", false),
        ] {
            let message = set(method, value);
            let answer = client.send_to(&mut server, &message, |asked| {
                answered(asked, form, is_accepted);
            });
            let answer = answer.await;
            assert_eq!(answer.status, 200, "{form:?}");
            assert_eq!(answer.text.contains("\"result\""), is_accepted, "{form:?}");
        }
        let wanted = [
            ("logging/setLevel".to_owned(), json!({"level": "debug"})),
            ("resources/subscribe".to_owned(), json!({"uri": "a:1"})),
        ];
        let restored = restored(&client, &mut server, version).await;
        assert_eq!(restored, wanted, "{form:?}");
        server.finish();
    }
}

#[tokio::test]
async fn what_was_accepted_on_a_stream_is_stored_before_the_client_hears_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Scripted::start().await;
    let stored = Config {
        store: in_file(&directory.path().join("sessions.db")),
        ..config(&[("s", server.url())])
    };
    let gateway = Gateway::start(stored.clone()).await.unwrap();
    let mut client = opened_in(&gateway, &mut server, "2025-11-25").await;
    let message = set("resources/subscribe", "a:1");
    let answer = client.send_to(&mut server, &message, |asked| {
        answered(asked, Form::LateEvents, true);
    });
    assert!(answer.await.text.contains("\"result\""));
    gateway.stop().await;
    let gateway = Gateway::start(stored).await.unwrap();
    client.url = Client::new(&gateway).url;
    let wanted = [("resources/subscribe".to_owned(), json!({"uri": "a:1"}))];
    assert_eq!(restored(&client, &mut server, "2025-11-25").await, wanted);
    server.finish();
}

// --- how much

fn reason(answer: &Answer) -> Value {
    answer.json()["error"]["data"]["reason"].clone()
}

#[tokio::test]
async fn subscriptions_beyond_what_can_be_restored_are_refused_and_not_sent() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let client = opened_in(&gateway, &mut server, "2025-11-25").await;
    let long = |name: &str| format!("{name}:{}", "x".repeat(40 * 1024));
    let subscribe = |name: &str| set("resources/subscribe", &long(name));
    let first = subscribe("a");
    let answer = client.send_to(&mut server, &first, |asked| asked.result(&json!({})));
    assert_eq!(answer.await.status, 200);
    // In band: as a status it would end the session of some clients.
    let second = subscribe("b");
    let refused = client.send(&second).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (200, -31005));
    assert_eq!(reason(&refused), "too_many_subscriptions");
    let less = set("resources/unsubscribe", &long("a"));
    for message in [less, second] {
        let answer = client.send_to(&mut server, &message, |asked| asked.result(&json!({})));
        assert_eq!(answer.await.status, 200);
    }
    let wanted = [("resources/subscribe".to_owned(), json!({"uri": long("b")}))];
    let restored = restored(&client, &mut server, "2025-11-25").await;
    assert_eq!(restored, wanted);
    server.finish();
}

#[tokio::test]
async fn an_initialize_that_is_too_large_to_be_kept_is_refused() {
    let mut server = Scripted::start().await;
    let gateway = gateway(server.url()).await;
    let mut large = initialize_message();
    large["params"]["clientInfo"]["name"] = "x".repeat(64 * 1024).into();
    let client = Client::new(&gateway);
    let refused = client.send(&large).await;
    assert_eq!((refused.status.as_u16(), refused.code()), (413, -32600));
    assert_eq!(reason(&refused), "initialize_too_large");
    // The query counts, too.
    large["params"]["clientInfo"]["name"] = "x".repeat(60 * 1024).into();
    let mut at_length = client.clone();
    at_length.url = format!("{}?{}", client.url, "q".repeat(8 * 1024));
    assert_eq!(at_length.send(&large).await.status, 413);
    let (opened, ()) = tokio::join!(client.send(&large), async {
        server.next().await.initialized(Some("u1"));
    });
    assert_eq!(opened.status, 200);
    server.finish();
}
