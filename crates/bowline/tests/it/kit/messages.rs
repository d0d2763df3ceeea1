//! What clients and servers say.

use serde_json::{Value, json};

/// The revision that clients ask for.
pub(crate) const VERSION: &str = "2025-11-25";

/// The header of an answer that is one message.
pub(crate) const JSON: (&str, &str) = ("content-type", "application/json");

pub(crate) fn initialize_message() -> Value {
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }})
}

pub(crate) fn call(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": "t", "arguments": {}}})
}

/// A request for the server's tools.
pub(crate) fn list(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/list"})
}

/// What a client says once its session is open.
pub(crate) fn ready() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

/// A notification.
pub(crate) fn note(method: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": method})
}

/// A result for the request of this id.
pub(crate) fn result(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "result": {}})
}

/// A request of this method.
pub(crate) fn request(id: impl Into<Value>, method: &str, params: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params.into()})
}

/// A client takes the request of this id back.
pub(crate) fn cancel(id: impl Into<Value>) -> Value {
    let mut cancel = note("notifications/cancelled");
    cancel["params"] = json!({"requestId": id.into()});
    cancel
}

/// Asserts that a message is the error for an answer that is too large to be passed on.
#[track_caller]
pub(crate) fn assert_too_large(message: &Value) {
    let error = &message["error"];
    let told = (&error["code"], &error["data"]["reason"]);
    assert_eq!(
        told,
        (&json!(-32603), &json!("answer_too_large")),
        "{error}"
    );
    let why = error["message"].as_str().unwrap();
    assert!(
        why.contains("64 MiB") || why.contains("67108864 bytes"),
        "{why}"
    );
}
