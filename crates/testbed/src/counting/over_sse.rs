//! A replica over HTTP+SSE (2024-11-05): a GET opens a stream, which is the session. Its first event names the URL
//! for messages, and whatever answers them comes on the stream. A session that was forgotten still has its stream,
//! and its messages get 404.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{Method, Response, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::serve::{Plain, Reply, error, event_stream, json as json_body, plain, refused, spawn};
use super::stream::Stream;
use super::tools::{Call, Manner};
use super::{Life, Replica};
use crate::scripted::Scroll;

/// Where streams are.
pub(super) const PATH: &str = "/sse";
/// The same, if the replica does not speak streamable HTTP there.
const EITHER: &str = "/either";
const MESSAGES: &str = "/messages";

/// Whether a request is for this transport.
pub(super) fn is_path(path: &str, either_is_sse: bool) -> bool {
    matches!(path, PATH | MESSAGES) || path == EITHER && either_is_sse
}

impl Replica {
    pub(super) fn serve_sse(
        self: Arc<Self>,
        method: &Method,
        uri: &Uri,
        message: &Value,
        life: &Life,
    ) -> Response<Scroll> {
        let session = uri.query().and_then(|query| query.strip_prefix("session="));
        match (method, uri.path(), session) {
            (&Method::GET, PATH | EITHER, _) => self.open_stream(life),
            (&Method::POST, MESSAGES, Some(session)) => self.take(session, message, life),
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
        }
    }

    fn open_stream(self: Arc<Self>, life: &Life) -> Response<Scroll> {
        let (id, stream) = self.sessions.open_stream(&self.name);
        stream.write_event("endpoint", &format!("{MESSAGES}?session={id}"));
        let body = stream.body_until(0, life, move || self.sessions.end(&id));
        let mut response = event_stream(body);
        response.extensions_mut().insert(Plain);
        response
    }

    fn take(self: Arc<Self>, session: &str, message: &Value, life: &Life) -> Response<Scroll> {
        let method = message["method"].as_str().unwrap_or("a response");
        let stream = self.sessions.main_stream(session);
        let (true, Some(stream)) = (self.sessions.note(session, method), stream) else {
            self.strays.fetch_add(1, Ordering::Relaxed);
            return plain(StatusCode::NOT_FOUND, "no such session");
        };
        if method == "initialize" {
            let result = self.initialized(message);
            self.stream_births.lock().push(Instant::now());
            let parameters = message["params"].clone();
            self.sessions
                .change(session, |session| session.parameters = parameters);
            stream.write(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}));
            return plain(StatusCode::ACCEPTED, "");
        }
        match self.reply(session, message) {
            Reply::Accepted => {}
            Reply::Answer(answer) => stream.write(&answer),
            Reply::Call => return self.call_on(stream, session, message, life),
        }
        plain(StatusCode::ACCEPTED, "")
    }

    /// Calls a tool, whose answer comes on the session's stream, unless it refuses with a status. The call continues
    /// if the stream ends.
    fn call_on(
        self: Arc<Self>,
        out: Arc<Stream>,
        session: &str,
        message: &Value,
        life: &Life,
    ) -> Response<Scroll> {
        let (call, owner) = (Call::new(message), session.to_owned());
        match call.manner() {
            None => out.write(&error(message, -32602, "no such tool")),
            Some(Manner::Plain) => out.write(&call.run(&self, session)),
            Some(Manner::Refusal(refusal)) => {
                let answer = call.refuse(&self, session);
                let Some(after) = refusal.comes_after else {
                    return refused(refusal, &answer.to_string(), json_body);
                };
                spawn(life, async move {
                    tokio::time::sleep(after).await;
                    out.write(&answer);
                });
                return plain(StatusCode::NOT_FOUND, "no such session");
            }
            Some(Manner::Turn) => call.turn(&self, session, &out),
            Some(Manner::Forged) => call.forge(&self, session, &out),
            Some(Manner::Large { .. } | Manner::LargeEvent) => {
                out.write_text(&call.run_large(&self, session));
            }
            Some(Manner::Stream { .. }) => spawn(life, call.run_slowly(self, owner, out)),
            Some(Manner::Cancellable) => {
                let cancelled = self.sessions.begin(session, &message["id"]);
                spawn(life, call.run_until(cancelled, self, owner, out));
            }
        }
        plain(StatusCode::ACCEPTED, "")
    }
}
