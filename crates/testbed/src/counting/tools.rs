//! The tools: some may run twice and some may not.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::stream::Stream;
use super::{Execution, Replica};

/// What names of tools that turn begin with.
pub(crate) const TURN: &str = "turn_";

/// A call of a tool.
#[derive(Debug, Clone)]
pub(super) struct Call {
    id: Value,
    tool: String,
    key: String,
    steps: u64,
    step: Duration,
    progress_token: Option<Value>,
    arguments: Value,
}

/// How a tool answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// At once, as JSON.
    Plain,
    /// At once, as JSON with a status: an error that the caller provides.
    Refusal(Refusal),
    /// By a stream: it tells that it has become destructive, or runs and ends the stream instead of answering.
    Turn,
    /// By a stream, after messages that the caller provides.
    Forged,
    /// As JSON of many bytes, in chunks or not.
    Large { in_chunks: bool },
    /// By a stream of one event of many bytes.
    LargeEvent,
    /// By a stream, with or without event ids.
    Stream { with_ids: bool },
    /// The same, until it is cancelled.
    Cancellable,
}

/// How a tool refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) retry_after: bool,
    /// The answer's body ends in the middle.
    pub(super) is_cut: bool,
    /// Over HTTP+SSE: the message gets 404, and the answer comes on the stream so much later.
    pub(super) comes_after: Option<Duration>,
}

/// What a server says whose tools have changed.
pub(crate) fn list_changed() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
}

/// What the tool is called that turns in a session with these parameters. Each client has one of its own, because what
/// tools are is a matter of a server and a caller, and these clients are one caller.
pub(crate) fn turning(parameters: &Value) -> String {
    let name = parameters["clientInfo"]["name"].as_str();
    let number = name.and_then(|name| name.split(' ').next_back());
    format!("{TURN}{}", number.unwrap_or_default())
}

/// The result of `tools/list`: those that every test uses, or all, with one that turns and whether it has.
pub(crate) fn listing(
    all: bool,
    flip_is_destructive: bool,
    turning: &str,
    has_turned: bool,
) -> Value {
    let key = json!({"type": "string"});
    let number = json!({"type": "integer"});
    let plain = json!({"type": "object", "properties": {"key": key}, "required": ["key"]});
    let stream = json!({"type": "object", "properties": {"key": key, "steps": number, "ms": number}, "required": ["key"]});
    let read_only = json!({"readOnlyHint": true});
    let flip = json!({"readOnlyHint": !flip_is_destructive});
    let turn = json!({"readOnlyHint": !has_turned});
    let mut tools = vec![
        json!({"name": "read", "description": "Returns the key.", "inputSchema": plain, "annotations": read_only}),
        json!({"name": "bump", "description": "Counts the key.", "inputSchema": plain}),
        json!({"name": "slow", "description": "Counts the key and takes its time.", "inputSchema": stream}),
        json!({"name": "stream_read", "description": "Returns the key by a stream that can be resumed.", "inputSchema": stream, "annotations": read_only}),
    ];
    if all {
        tools.extend([
            json!({"name": "refuse", "description": "Counts the key and refuses.", "inputSchema": plain}),
            json!({"name": "flip", "description": "Changes its nature.", "inputSchema": plain, "annotations": flip}),
            json!({"name": turning, "description": "Becomes destructive in one session.", "inputSchema": plain, "annotations": turn}),
            json!({"name": "forge", "description": "Counts the key and writes what it is told.", "inputSchema": plain}),
            json!({"name": "large", "description": "Counts the key and says much.", "inputSchema": plain}),
            json!({"name": "large_event", "description": "Says much at once.", "inputSchema": plain, "annotations": read_only}),
            json!({"name": "long", "description": "Counts the key and can be cancelled.", "inputSchema": stream}),
        ]);
    }
    json!({"tools": tools})
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
            arguments: arguments.clone(),
        }
    }

    /// How the call is answered; `None` if there is no such tool.
    pub(super) fn manner(&self) -> Option<Manner> {
        match self.tool.as_str() {
            "read" | "bump" | "flip" => Some(Manner::Plain),
            "refuse" => Some(Manner::Refusal(self.refusal())),
            turn if turn.starts_with(TURN) => Some(Manner::Turn),
            "forge" => Some(Manner::Forged),
            "large" => Some(Manner::Large {
                in_chunks: self.arguments["chunked"] == true,
            }),
            "large_event" => Some(Manner::LargeEvent),
            "slow" => Some(Manner::Stream { with_ids: false }),
            "stream_read" => Some(Manner::Stream { with_ids: true }),
            "long" => Some(Manner::Cancellable),
            _ => None,
        }
    }

    /// Runs the tool and returns the response.
    pub(super) fn run(&self, replica: &Replica, session: &str) -> Value {
        let executions = self.count(replica, session);
        self.answer(replica, executions)
    }

    /// Runs the tool and returns an error with the caller's text.
    pub(super) fn refuse(&self, replica: &Replica, session: &str) -> Value {
        self.count(replica, session);
        json!({"jsonrpc": "2.0", "id": self.id, "error": {
            "code": self.arguments["code"], "message": self.arguments["message"], "data": {"key": self.key},
        }})
    }

    fn refusal(&self) -> Refusal {
        let number = |name: &str| self.arguments[name].as_u64();
        let status = number("status").and_then(|status| status.try_into().ok());
        Refusal {
            status: status.unwrap_or(400),
            retry_after: self.arguments["retryAfter"] == true,
            is_cut: self.arguments["cut"] == true,
            comes_after: number("after").map(Duration::from_millis),
        }
    }

    /// Answers, and tells that this tool has become destructive in this session; or runs, and ends the stream the first
    /// time, so that nobody knows what became of it. It was destructive if its caller had an answer that was written
    /// after that was told: the call `after` which it was.
    pub(super) fn turn(&self, replica: &Replica, session: &str, out: &Stream) {
        let mut execution = Execution::new(&replica.name, session, &self.tool);
        let turned = replica.sessions.get(session).unwrap_or_default().turned;
        execution.destructive = turned.contains(&text(&self.arguments["after"]));
        let executions = replica.tally.add(&self.key, execution);
        let answer = self.answer(replica, executions);
        if self.arguments["changes"] == true {
            let mut messages = [answer, list_changed()];
            // Nothing comes after the answer on a stream of its own.
            if !out.is_lasting() {
                messages.reverse();
            }
            // Before it is told: a list that comes afterwards says it.
            replica.sessions.change(session, |session| {
                session.turned.insert(self.key.clone());
            });
            out.write_both(&messages);
        } else if executions == 1 {
            out.close();
        } else {
            out.write(&answer);
        }
        out.finish();
    }

    /// Runs the tool, and writes what its caller wants, letter for letter, before the answer.
    pub(super) fn forge(&self, replica: &Replica, session: &str, out: &Stream) {
        let executions = self.count(replica, session);
        for forged in self.arguments["forged"].as_array().into_iter().flatten() {
            out.write_as(&text(&self.arguments["eventId"]), &text(forged));
        }
        out.write(&self.answer(replica, executions));
        out.finish();
    }

    /// Runs the tool and returns a response (JSON text) with the requested padding.
    pub(super) fn run_large(&self, replica: &Replica, session: &str) -> String {
        let answer = self.run(replica, session).to_string();
        let bytes = self.arguments["bytes"].as_u64().unwrap_or_default();
        let padding = "x".repeat(usize::try_from(bytes).unwrap_or_default());
        let result = format!(r#""result":{{"padding":"{padding}","#);
        answer.replacen(r#""result":{"#, &result, 1)
    }

    /// Runs it with progress in between.
    pub(super) async fn run_slowly(self, replica: Arc<Replica>, session: String, out: Arc<Stream>) {
        let executions = self.count(&replica, &session);
        for step in 1..=self.steps {
            tokio::time::sleep(self.step).await;
            out.write(&self.progress(step));
        }
        out.write(&self.answer(&replica, executions));
        replica.tally.finish(&self.key, executions);
        out.finish();
    }

    /// The same until it is cancelled: then the stream ends without a response.
    pub(super) async fn run_until(
        self,
        cancelled: CancellationToken,
        replica: Arc<Replica>,
        session: String,
        out: Arc<Stream>,
    ) {
        let running = self.run_slowly(replica, session, Arc::clone(&out));
        if cancelled.run_until_cancelled(running).await.is_none() {
            out.finish();
        }
    }

    fn count(&self, replica: &Replica, session: &str) -> usize {
        let execution = Execution::new(&replica.name, session, &self.tool);
        replica.tally.add(&self.key, execution)
    }

    fn answer(&self, replica: &Replica, executions: usize) -> Value {
        json!({"jsonrpc": "2.0", "id": self.id, "result": {
            "content": [{"type": "text", "text": self.key}],
            "structuredContent": {"key": self.key, "executions": executions, "replica": replica.name},
        }})
    }

    /// Progress if the call asked for it, otherwise a log message.
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
