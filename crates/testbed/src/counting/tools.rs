//! The tools: two that may run twice and two that may not.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::stream::Stream;
use super::{Execution, Replica};

/// A call of a tool.
#[derive(Debug, Clone)]
pub(super) struct Call {
    id: Value,
    tool: String,
    key: String,
    steps: u64,
    step: Duration,
    progress_token: Option<Value>,
}

/// How a tool answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// At once, as JSON.
    Plain,
    /// By a stream, with or without event ids.
    Stream { with_ids: bool },
}

/// What `tools/list` says.
pub(super) fn listing() -> Value {
    let key = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let plain = json!({"type": "object", "properties": {"key": key}, "required": ["key"]});
    let stream = json!({"type": "object", "properties": {"key": key, "steps": number, "ms": number}, "required": ["key"]});
    let read_only = json!({"readOnlyHint": true});
    json!({"tools": [
        {"name": "read", "description": "Returns the key.", "inputSchema": plain, "annotations": read_only},
        {"name": "bump", "description": "Counts the key.", "inputSchema": plain},
        {"name": "slow", "description": "Counts the key and takes its time.", "inputSchema": stream},
        {"name": "stream_read", "description": "Returns the key by a stream that can be resumed.", "inputSchema": stream, "annotations": read_only},
    ]})
}

impl Call {
    pub(super) fn new(message: &Value) -> Self {
        let parameters = &message["params"];
        let arguments = &parameters["arguments"];
        Self {
            id: message["id"].clone(),
            tool: text(&parameters["name"]),
            key: text(&arguments["key"]),
            steps: arguments["steps"].as_u64().unwrap_or(3),
            step: Duration::from_millis(arguments["ms"].as_u64().unwrap_or(10)),
            progress_token: parameters["_meta"].get("progressToken").cloned(),
        }
    }

    /// How it is answered; `None` when there is no such tool.
    pub(super) fn manner(&self) -> Option<Manner> {
        match self.tool.as_str() {
            "read" | "bump" => Some(Manner::Plain),
            "slow" => Some(Manner::Stream { with_ids: false }),
            "stream_read" => Some(Manner::Stream { with_ids: true }),
            _ => None,
        }
    }

    /// Runs it; the answer.
    pub(super) fn run(&self, replica: &Replica, session: &str) -> Value {
        let executions = self.count(replica, session);
        self.answer(replica, executions)
    }

    /// Runs it with progress in between.
    pub(super) async fn run_slowly(self, replica: Arc<Replica>, session: String, out: Arc<Stream>) {
        let executions = self.count(&replica, &session);
        for step in 1..=self.steps {
            tokio::time::sleep(self.step).await;
            out.write(&self.progress(step));
        }
        out.write(&self.answer(&replica, executions));
        out.finish();
    }

    fn count(&self, replica: &Replica, session: &str) -> usize {
        let execution = Execution {
            replica: replica.name.clone(),
            session: session.to_owned(),
            tool: self.tool.clone(),
            at: Instant::now(),
        };
        replica.tally.add(&self.key, execution)
    }

    fn answer(&self, replica: &Replica, executions: usize) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "result": {
            "content": [{"type": "text", "text": self.key}],
            "structuredContent": {"key": self.key, "executions": executions, "replica": replica.name},
        }})
    }

    /// A sign of life: progress if it was asked for, otherwise a log message.
    fn progress(&self, step: u64) -> Value {
        match &self.progress_token {
            Some(token) => {
                json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": self.steps}})
            }
            None => {
                json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": self.key}})
            }
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
