//! What the tests of the gateway rely on: state is kept by session, and a replica knows when a
//! request was not meant for it. The MCP surface itself is tested by the conformance suite.

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::Replica;

#[tokio::test]
async fn sessions_count_separately() {
    let replica = Replica::new("a");
    let first = initialize(&replica).await;
    let second = initialize(&replica).await;

    assert_eq!(call_tool(&replica, &first, "count").await, "1");
    assert_eq!(call_tool(&replica, &first, "count").await, "2");
    assert_eq!(call_tool(&replica, &second, "count").await, "1");
    assert_eq!(call_tool(&replica, &second, "whoami").await, "a");

    assert_eq!(replica.live_sessions().await, 2);
    assert_eq!(replica.observed().initializes(), 2);
    assert_eq!(replica.observed().strays(), 0);
}

#[tokio::test]
async fn a_session_of_another_replica_is_a_stray() {
    let (home, wrong) = (Replica::new("home"), Replica::new("wrong"));
    let session = initialize(&home).await;

    let (status, _, _) = send(&wrong, Method::POST, Some(&session), tool_call("count")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    // rmcp accepts the end of a session it never had.
    let (status, _, _) = send(&wrong, Method::DELETE, Some(&session), Value::Null).await;
    assert_eq!(status, StatusCode::ACCEPTED);

    assert_eq!(wrong.observed().requests(), 2);
    assert_eq!(wrong.observed().not_found(), 1);
    assert_eq!(wrong.observed().strays(), 2);
    assert_eq!(wrong.observed().initializes(), 0);
}

#[tokio::test]
async fn a_deleted_session_is_gone() {
    let replica = Replica::new("a");
    let session = initialize(&replica).await;
    let (status, _, _) = send(&replica, Method::DELETE, Some(&session), Value::Null).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    assert_eq!(replica.live_sessions().await, 0);

    let (status, _, _) = send(&replica, Method::POST, Some(&session), tool_call("count")).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(replica.observed().strays(), 1);
}

/// Starts a session and returns its id.
async fn initialize(replica: &Replica) -> String {
    let request = json!({
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "test", "version": "0" }
        }
    });
    let (status, session, _) = send(replica, Method::POST, None, request).await;
    assert_eq!(status, StatusCode::OK);
    let session = session.unwrap();
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    let (status, _, _) = send(replica, Method::POST, Some(&session), initialized).await;
    assert_eq!(status, StatusCode::ACCEPTED);
    session
}

/// Calls a tool without arguments and returns the text of its result.
async fn call_tool(replica: &Replica, session: &str, name: &str) -> String {
    let (status, _, body) = send(replica, Method::POST, Some(session), tool_call(name)).await;
    assert_eq!(status, StatusCode::OK);
    let answer = body
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .find_map(|data| serde_json::from_str::<Value>(data).ok())
        .unwrap();
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn tool_call(name: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name } })
}

/// Sends one HTTP request; returns the status, the session id it was given, and the whole body.
async fn send(
    replica: &Replica,
    method: Method,
    session: Option<&str>,
    body: Value,
) -> (StatusCode, Option<String>, String) {
    let mut request = Request::builder()
        .method(method)
        .uri(super::PATH)
        .header("host", "localhost")
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session);
    }
    let request = request.body(Body::from(body.to_string())).unwrap();
    let router = replica.router(CancellationToken::new());
    let response = TowerToHyperService::new(router)
        .call(request)
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let session = parts.headers.get("mcp-session-id");
    let session = session.map(|id| id.to_str().unwrap().to_owned());
    let body = to_bytes(body, usize::MAX).await.unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    (parts.status, session, body)
}
