//! The demo's side of MCP, without HTTP: what a message is, and what is answered to it.

use serde_json::{Value, json};

use super::sessions::Session;
use super::tools;

/// The revisions it speaks, oldest first.
const VERSIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// A message as far as the demo cares.
#[derive(Debug)]
pub(super) enum Message {
    Request(Request),
    /// A notification or a response, which nobody answers.
    Unanswered,
}

/// A request, which somebody waits for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) id: Value,
    pub(super) method: String,
    params: Value,
}

/// An error as JSON-RPC has it.
#[derive(Debug)]
pub(super) struct RpcError {
    pub(super) code: i32,
    pub(super) message: String,
}

/// Whether the demo speaks this revision.
pub(super) fn is_supported(version: &str) -> bool {
    VERSIONS.contains(&version)
}

/// Reads one message.
pub(super) fn parse(bytes: &[u8]) -> Result<Message, RpcError> {
    let mut value: Value =
        serde_json::from_slice(bytes).map_err(|_| RpcError::new(-32700, "the body is not JSON"))?;
    let is_response = value.get("result").is_some() || value.get("error").is_some();
    let is_versioned = value.get("jsonrpc").and_then(Value::as_str) == Some("2.0");
    let method = value.get("method").and_then(Value::as_str);
    match (is_versioned, value.get("id"), method) {
        (true, None, Some(_)) => Ok(Message::Unanswered),
        (true, Some(_), None) if is_response => Ok(Message::Unanswered),
        (true, Some(id @ (Value::String(_) | Value::Number(_))), Some(method)) => {
            let (id, method) = (id.clone(), method.to_owned());
            let params = value.get_mut("params").map(Value::take);
            Ok(Message::Request(Request {
                id,
                method,
                params: params.unwrap_or_default(),
            }))
        }
        _ => Err(RpcError::new(
            -32600,
            "the body is not one JSON-RPC message",
        )),
    }
}

/// The answer to `initialize`: the client's revision if the demo speaks it, else the newest.
pub(super) fn initialize(request: &Request) -> Result<Value, RpcError> {
    let wanted = request.params.get("protocolVersion");
    let wanted = wanted
        .and_then(Value::as_str)
        .ok_or_else(|| RpcError::new(-32602, "`protocolVersion` is missing"))?;
    let newest = VERSIONS[VERSIONS.len() - 1];
    let version = if is_supported(wanted) { wanted } else { newest };
    Ok(json!({
        "protocolVersion": version,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "bowline-demo", "version": env!("CARGO_PKG_VERSION")},
        "instructions": "A demo of sessions: `count` and `remember` keep what they are told for \
                         this session only.",
    }))
}

/// The answer to any other request of a session.
pub(super) fn answer(session: &mut Session, request: &Request) -> Result<Value, RpcError> {
    match request.method.as_str() {
        "ping" => Ok(json!({})),
        "tools/list" => Ok(tools::list()),
        "tools/call" => {
            let name = request.params.get("name").and_then(Value::as_str);
            let name = name.ok_or_else(|| RpcError::new(-32602, "`name` is missing"))?;
            let arguments = request.params.get("arguments").unwrap_or(&Value::Null);
            tools::call(session, name, arguments)
                .ok_or_else(|| RpcError::new(-32602, format!("unknown tool: {name}")))
        }
        method => Err(RpcError::new(-32601, format!("unknown method: {method}"))),
    }
}

/// A result or an error as the message that carries it.
pub(super) fn envelope(id: &Value, answered: Result<Value, RpcError>) -> Value {
    match answered {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(RpcError { code, message }) => {
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
        }
    }
}

// === impl RpcError ===

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}
