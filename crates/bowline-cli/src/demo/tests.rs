use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use tokio::time::advance;

use super::endpoint::{self, BODY_LIMIT, PATH};
use super::sessions::{IDLE, MOST, Sessions};

async fn send(
    sessions: &Sessions,
    method: Method,
    headers: &[(&str, &str)],
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(PATH);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    endpoint::serve(sessions, request.body(Full::new(body.into())).unwrap()).await
}

async fn post(sessions: &Sessions, session: &str, body: &Value) -> Response<Full<Bytes>> {
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("mcp-session-id", session),
    ];
    let headers = if session.is_empty() {
        &headers[..1]
    } else {
        &headers[..]
    };
    send(sessions, Method::POST, headers, body.to_string()).await
}

async fn body(response: Response<Full<Bytes>>) -> Value {
    #[expect(clippy::disallowed_methods, reason = "the body is our own")]
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    serde_json::from_slice(&bytes).unwrap()
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

fn initialize(version: &str) -> Value {
    request("initialize", &json!({"protocolVersion": version}))
}

async fn open(sessions: &Sessions) -> String {
    let response = post(sessions, "", &initialize("2025-11-25")).await;
    assert_eq!(response.status(), StatusCode::OK);
    let id = response.headers()["mcp-session-id"].to_str().unwrap();
    assert_eq!(id.len(), 32);
    id.to_owned()
}

/// What a tool says, and whether it is an error.
async fn call(sessions: &Sessions, id: &str, name: &str, arguments: Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let answer = body(post(sessions, id, &request("tools/call", &params)).await).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    let is_error = answer["result"]["isError"].as_bool().unwrap();
    (text.to_owned(), is_error)
}

#[tokio::test]
async fn the_revision_is_the_clients_or_the_newest() {
    let sessions = Sessions::default();
    for (wanted, given) in [
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
    ] {
        let answer = body(post(&sessions, "", &initialize(wanted)).await).await;
        assert_eq!(answer["result"]["protocolVersion"], given);
        assert_eq!(answer["id"], 7);
    }
    let response = post(&sessions, "", &request("initialize", &json!({}))).await;
    assert!(!response.headers().contains_key("mcp-session-id"));
    assert_eq!(body(response).await["error"]["code"], -32602);
}

#[tokio::test]
async fn each_session_remembers_its_own() {
    let sessions = Sessions::default();
    let (one, two) = (open(&sessions).await, open(&sessions).await);
    let fine = |text: &str| (text.to_owned(), false);
    for (id, expected) in [(&one, "1"), (&one, "2"), (&two, "1"), (&one, "3")] {
        assert_eq!(
            call(&sessions, id, "count", json!({})).await,
            fine(expected)
        );
    }
    for note in ["milk", "eggs"] {
        let (_, is_error) = call(&sessions, &one, "remember", json!({"text": note})).await;
        assert!(!is_error);
    }
    let recalled = call(&sessions, &one, "recall", json!({})).await;
    assert_eq!(recalled, fine("milk\neggs"));
    let recalled = call(&sessions, &two, "recall", Value::Null).await;
    assert_eq!(recalled, fine("Nothing was remembered in this session."));
    let echoed = call(&sessions, &two, "echo", json!({"text": "ahoy"})).await;
    assert_eq!(echoed, fine("ahoy"));
}

#[tokio::test]
async fn wrong_arguments_are_the_tools_answer() {
    let sessions = Sessions::default();
    let id = open(&sessions).await;
    for arguments in [json!({}), json!({"text": 1}), Value::Null] {
        assert!(call(&sessions, &id, "remember", arguments).await.1);
    }
    let long = json!({"text": "x".repeat(1001)});
    assert!(call(&sessions, &id, "remember", long).await.1);
    for _ in 0..50 {
        assert!(
            !call(&sessions, &id, "remember", json!({"text": "x"}))
                .await
                .1
        );
    }
    assert!(
        call(&sessions, &id, "remember", json!({"text": "x"}))
            .await
            .1
    );
}

#[tokio::test]
async fn unknown_methods_and_tools_are_errors_with_status_200() {
    let sessions = Sessions::default();
    let id = open(&sessions).await;
    for (method, params, code) in [
        ("resources/list", json!({}), -32601),
        ("tools/call", json!({"name": "nothing"}), -32602),
        ("tools/call", json!({}), -32602),
    ] {
        let response = post(&sessions, &id, &request(method, &params)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(body(response).await["error"]["code"], code, "{method}");
    }
    let pong = body(post(&sessions, &id, &request("ping", &json!({}))).await).await;
    assert_eq!(pong, json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
}

#[tokio::test]
async fn every_listed_tool_can_be_called() {
    let sessions = Sessions::default();
    let id = open(&sessions).await;
    let listed = body(post(&sessions, &id, &request("tools/list", &json!({}))).await).await;
    let tools = listed["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 4);
    for tool in tools {
        assert_eq!(tool["annotations"]["openWorldHint"], false, "{tool}");
        let name = tool["name"].as_str().unwrap();
        let (_, is_error) = call(&sessions, &id, name, json!({"text": "x"})).await;
        assert!(!is_error, "{name}");
    }
}

#[tokio::test]
async fn sessions_are_asked_for_and_can_be_deleted() {
    let sessions = Sessions::default();
    let ping = request("ping", &json!({}));
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let result = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    for message in [&ping, &note, &result] {
        let status = post(&sessions, "", message).await.status();
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let status = post(&sessions, "unknown", message).await.status();
        assert_eq!(status, StatusCode::NOT_FOUND);
    }
    let id = open(&sessions).await;
    for message in [&note, &result] {
        let status = post(&sessions, &id, message).await.status();
        assert_eq!(status, StatusCode::ACCEPTED);
    }
    let headers = [("mcp-session-id", id.as_str())];
    for expected in [StatusCode::NO_CONTENT, StatusCode::NOT_FOUND] {
        let response = send(&sessions, Method::DELETE, &headers, "").await;
        assert_eq!(response.status(), expected);
    }
    let status = post(&sessions, &id, &ping).await.status();
    assert_eq!(status, StatusCode::NOT_FOUND);
    let status = send(&sessions, Method::DELETE, &[], "").await.status();
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_is_not_mcp_is_refused() {
    let sessions = Sessions::default();
    let json = ("content-type", "application/json");
    let ping = request("ping", &json!({})).to_string();
    let large = " ".repeat(BODY_LIMIT + 1);
    let version = ("mcp-protocol-version", "1999-01-01");
    let id = open(&sessions).await;
    let session = ("mcp-session-id", id.as_str());
    for (method, headers, body, status) in [
        (Method::GET, &[session][..], "", 405),
        (Method::PUT, &[json], "", 405),
        (Method::POST, &[session], ping.as_str(), 415),
        (Method::POST, &[json, session], "{", 400),
        (Method::POST, &[json, session], "[]", 400),
        (Method::POST, &[json, session], "{}", 400),
        (Method::POST, &[json, session], &large, 413),
        (Method::POST, &[json, session, version], &ping, 400),
        (Method::POST, &[json, ("origin", "http://a")], &ping, 403),
    ] {
        let body = body.to_owned();
        let response = send(&sessions, method.clone(), headers, body).await;
        assert_eq!(response.status(), status, "{method} {headers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_sessions_are_forgotten() {
    let sessions = Sessions::default();
    let (used, idle) = (open(&sessions).await, open(&sessions).await);
    advance(IDLE / 2).await;
    assert!(sessions.with(&used, |_| ()).is_some());
    advance(IDLE / 2).await;
    assert!(sessions.with(&used, |_| ()).is_some());
    assert!(sessions.with(&idle, |_| ()).is_none());
    assert!(!sessions.close(&idle));
    open(&sessions).await;
    assert_eq!(sessions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_session_that_rested_longest_makes_room() {
    let sessions = Sessions::default();
    let (first, second) = (open(&sessions).await, open(&sessions).await);
    advance(IDLE / 4).await;
    for _ in 2..MOST {
        open(&sessions).await;
    }
    assert!(sessions.with(&first, |_| ()).is_some());
    assert_eq!(sessions.len(), MOST);
    open(&sessions).await;
    assert_eq!(sessions.len(), MOST);
    assert!(sessions.with(&first, |_| ()).is_some());
    assert!(sessions.with(&second, |_| ()).is_none());
}
