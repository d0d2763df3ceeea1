//! One request to a replica.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::resting::Busy;
use super::stream::Stream;
use super::tools::{self, Call, Manner, Refusal};
use super::{Execution, Life, Replica, over_sse};
use crate::scripted::Scroll;

const SESSION_ID: &str = "mcp-session-id";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const MAX_BODY: usize = 1 << 20;

/// What a message is answered with.
#[derive(Debug)]
pub(super) enum Reply {
    /// Nothing.
    Accepted,
    Answer(Value),
    /// What a tool says.
    Call,
}

/// A response of which nothing is escaped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Answers a request, in the replica's JSON style.
pub(super) async fn serve(
    request: Request<Incoming>,
    replica: Arc<Replica>,
    life: Life,
    until_answered: Busy,
) -> Result<Response<Scroll>, Failure> {
    let answered = answered(request, Arc::clone(&replica), life, until_answered).await?;
    // What is on a stream that is a session stays as it is: the URL in its first event has slashes.
    if !replica.settings.lock().escapes_slashes || answered.extensions().get::<Plain>().is_some() {
        return Ok(answered);
    }
    let (mut head, body) = answered.into_parts();
    let (body, length) = body.escaping_slashes();
    if let Some(announced) = head.headers.get_mut(http::header::CONTENT_LENGTH) {
        *announced = length.into();
    }
    Ok(Response::from_parts(head, body))
}

async fn answered(
    request: Request<Incoming>,
    replica: Arc<Replica>,
    life: Life,
    _until_answered: Busy,
) -> Result<Response<Scroll>, Failure> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "bounded")]
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let method = match head.method {
        Method::POST => message["method"].as_str().unwrap_or("a response"),
        ref other => other.as_str(),
    };
    let either_is_sse = replica.settings.lock().either_is_sse;
    if over_sse::is_path(head.uri.path(), either_is_sse) {
        return Ok(replica.serve_sse(&head.method, &head.uri, &message, &life));
    }
    if method == "initialize" {
        return Ok(replica.initialize(&message));
    }
    let Some(session) = header(SESSION_ID) else {
        return Ok(plain(StatusCode::BAD_REQUEST, "no session id"));
    };
    if !replica.sessions.note(session, method) {
        replica.strays.fetch_add(1, Ordering::Relaxed);
        return Ok(replica.lost(&message));
    }
    Ok(match head.method {
        Method::POST => replica.post(session, &message, &life),
        Method::GET => replica.get(session, header("last-event-id"), &life),
        Method::DELETE => {
            replica.sessions.end(session);
            replica.deletes.fetch_add(1, Ordering::Relaxed);
            plain(StatusCode::OK, "")
        }
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, ""),
    })
}

impl Replica {
    fn initialize(&self, message: &Value) -> Response<Scroll> {
        let result = self.initialized(message);
        self.births.lock().push(Instant::now());
        let id = self.sessions.open(&self.name, message["params"].clone());
        let mut response = self.result(message, &result);
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(SESSION_ID, id);
        }
        response
    }

    /// The result of an `initialize`, which is counted.
    pub(super) fn initialized(&self, message: &Value) -> Value {
        self.initializes.fetch_add(1, Ordering::Relaxed);
        let settings = self.settings.lock().clone();
        let version = settings.version.map_or_else(
            || message["params"]["protocolVersion"].clone(),
            |version| version.into(),
        );
        json!({
            "protocolVersion": version,
            "capabilities": settings.capabilities,
            "serverInfo": {"name": "counting", "version": "1"},
        })
    }

    fn lost(&self, message: &Value) -> Response<Scroll> {
        let lost = self.settings.lock().lost.clone();
        let body = lost.body.replace("$id", &message["id"].to_string());
        let mut response = plain(StatusCode::NOT_FOUND, body);
        *response.status_mut() = StatusCode::from_u16(lost.status).unwrap_or_default();
        for (name, value) in &lost.headers {
            if let (Ok(name), Ok(value)) = (
                name.parse::<http::HeaderName>(),
                HeaderValue::from_str(value),
            ) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    fn post(self: Arc<Self>, session: &str, message: &Value, life: &Life) -> Response<Scroll> {
        match self.reply(session, message) {
            Reply::Accepted => plain(StatusCode::ACCEPTED, ""),
            Reply::Call => self.call(session, message, life),
            Reply::Answer(answer) => self.answer(answer.to_string()),
        }
    }

    /// What a message is answered with, however it came.
    pub(super) fn reply(&self, session: &str, message: &Value) -> Reply {
        let method = message["method"].as_str().unwrap_or_default();
        let parameters = &message["params"];
        if message.get("id").is_none() || method.is_empty() {
            if method == "notifications/initialized" {
                self.sessions
                    .change(session, |session| session.initialized = true);
            }
            if method == "notifications/cancelled" {
                self.sessions.cancel(session, &parameters["requestId"]);
            }
            return Reply::Accepted;
        }
        if let Some(key) = parameters["_meta"]["key"].as_str() {
            self.tally
                .add(key, Execution::new(&self.name, session, method));
        }
        let uri = || parameters["uri"].as_str().unwrap_or_default().to_owned();
        let result = match method {
            "ping" => json!({}),
            "tools/list" => {
                let all = self.settings.lock().all_tools;
                let flip = self.tally.lists_flip_as_destructive();
                let session = self.sessions.get(session).unwrap_or_default();
                let turning = tools::turning(&session.parameters);
                tools::listing(all, flip, &turning, !session.turned.is_empty())
            }
            "tools/call" => return Reply::Call,
            "prompts/list" => json!({"prompts": []}),
            "resources/list" => json!({"resources": []}),
            "resources/read" => json!({"contents": [{"uri": uri(), "text": uri()}]}),
            "resources/subscribe" => {
                self.sessions.change(session, |session| {
                    session.subscriptions.insert(uri());
                });
                json!({})
            }
            "resources/unsubscribe" => {
                self.sessions.change(session, |session| {
                    session.subscriptions.remove(&uri());
                });
                json!({})
            }
            "logging/setLevel" => {
                let level = parameters["level"].as_str().map(ToOwned::to_owned);
                self.sessions
                    .change(session, |session| session.log_level = level);
                json!({})
            }
            _ => return Reply::Answer(error(message, -32601, "no such method")),
        };
        Reply::Answer(json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))
    }

    fn call(self: Arc<Self>, session: &str, message: &Value, life: &Life) -> Response<Scroll> {
        let call = Call::new(message);
        let Some(manner) = call.manner() else {
            return self.answer(error(message, -32602, "no such tool").to_string());
        };
        let with_ids = match manner {
            Manner::Plain => return self.answer(call.run(&self, session).to_string()),
            Manner::Refusal(refusal) => {
                let text = call.refuse(&self, session).to_string();
                return refused(refusal, &text, |text| self.answer(text));
            }
            Manner::Large { in_chunks } => {
                let text = call.run_large(&self, session);
                return if in_chunks {
                    chunked(&text)
                } else {
                    json(text)
                };
            }
            Manner::LargeEvent | Manner::Cancellable | Manner::Turn | Manner::Forged => false,
            Manner::Stream { with_ids } => with_ids,
        };
        let Some(stream) = self.sessions.stream(session, with_ids) else {
            // The session was lost a moment ago.
            return self.lost(message);
        };
        if with_ids {
            stream.prime();
        }
        let out = Arc::clone(&stream);
        let owner = session.to_owned();
        // The call continues if the client disconnects; only a crash stops it, or a cancellation if it
        // can be cancelled.
        match manner {
            Manner::LargeEvent => {
                out.write_text(&call.run_large(&self, session));
                out.finish();
            }
            Manner::Turn => call.turn(&self, session, &out),
            Manner::Forged => call.forge(&self, session, &out),
            Manner::Cancellable => {
                let cancelled = self.sessions.begin(session, &message["id"]);
                spawn(life, call.run_until(cancelled, self, owner, out));
            }
            _ => spawn(life, call.run_slowly(self, owner, out)),
        }
        events(stream, 0, life)
    }

    fn result(&self, message: &Value, result: &Value) -> Response<Scroll> {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
        self.answer(answer.to_string())
    }

    /// A response (JSON text) in this replica's style.
    fn answer(&self, message: String) -> Response<Scroll> {
        if self.settings.lock().chunked {
            chunked(&message)
        } else {
            json(message)
        }
    }

    fn get(&self, session: &str, after: Option<&str>, life: &Life) -> Response<Scroll> {
        match self.sessions.listen(session, after) {
            Some((stream, place)) => events(stream, place, life),
            None => plain(StatusCode::BAD_REQUEST, "no such event"),
        }
    }
}

/// An error of the server's.
pub(super) fn error(message: &Value, code: i64, text: &str) -> Value {
    let error = json!({"code": code, "message": text});
    json!({"jsonrpc": "2.0", "id": message["id"], "error": error})
}

pub(super) fn spawn(life: &Life, running: impl Future<Output = ()> + Send + 'static) {
    let over = life.over.clone();
    life.tasks.spawn(async move {
        tokio::select! {
            biased;
            () = over.cancelled() => {}
            () = running => {}
        }
    });
}

fn events(stream: Arc<Stream>, from: usize, life: &Life) -> Response<Scroll> {
    event_stream(stream.body(from, life))
}

pub(super) fn event_stream(body: Scroll) -> Response<Scroll> {
    let mut response = Response::new(body);
    let events = HeaderValue::from_static("text/event-stream");
    response.headers_mut().insert("content-type", events);
    response
}

pub(super) fn json(text: String) -> Response<Scroll> {
    let mut response = plain(StatusCode::OK, text);
    response.headers_mut().insert("content-type", JSON);
    response
}

/// The same in chunks, so that its length is unknown before its end.
fn chunked(text: &str) -> Response<Scroll> {
    let (parts, body) = mpsc::unbounded_channel();
    for part in text.as_bytes().chunks(text.len().div_ceil(3)) {
        drop(parts.send(Ok(part.to_owned().into())));
    }
    let mut response = Response::new(Scroll::new(body));
    response.headers_mut().insert("content-type", JSON);
    response
}

/// A tool's own refusal, whole or cut in the middle.
pub(super) fn refused(
    refusal: Refusal,
    text: &str,
    whole: impl FnOnce(String) -> Response<Scroll>,
) -> Response<Scroll> {
    let mut response = match refusal.is_cut {
        true => cut(text),
        false => whole(text.to_owned()),
    };
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or_default();
    if refusal.retry_after {
        let headers = response.headers_mut();
        headers.insert("retry-after", HeaderValue::from_static("1"));
    }
    response
}

/// Half of a text, in a chunk after which the connection ends.
fn cut(text: &str) -> Response<Scroll> {
    let (parts, body) = mpsc::unbounded_channel();
    let half = text.as_bytes()[..text.len() / 2].to_vec();
    drop(parts.send(Ok(half.into())));
    drop(parts.send(Err(std::io::ErrorKind::ConnectionReset.into())));
    let mut response = Response::new(Scroll::new(body));
    response.headers_mut().insert("content-type", JSON);
    response
}

pub(super) fn plain(status: StatusCode, text: impl Into<String>) -> Response<Scroll> {
    let (text, (parts, body)) = (text.into(), mpsc::unbounded_channel());
    let length = text.len();
    drop(parts.send(Ok(text.into())));
    let mut response = Response::new(Scroll::new(body));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert("content-length", length.into());
    response
}
