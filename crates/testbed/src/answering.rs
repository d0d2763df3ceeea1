//! A server that answers by a rule of the test and records every request.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::scripted::{Pen, Scroll};

const MAX_BODY: usize = 1024 * 1024;

/// A server that answers by a rule.
#[derive(Debug)]
pub struct Answering {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _serving: AbortOnDropHandle<()>,
}

/// A request.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Its method.
    pub method: Method,
    /// Path and query, unchanged.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
}

/// The response that a rule gives.
#[derive(Debug)]
pub struct Said {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// A body without an end, used instead.
    scroll: Option<Scroll>,
    /// The gate that it waits for.
    gate: Option<Gate>,
}

/// Holds responses back while it is closed.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    closed: watch::Sender<bool>,
    waiting: watch::Sender<usize>,
}

type Rule = dyn Fn(&Seen) -> Said + Send + Sync;

// === impl Answering ===

impl Answering {
    /// Listens on a free loopback port.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[expect(clippy::expect_used, reason = "a test without a port cannot go on")]
    pub async fn start(rule: impl Fn(&Seen) -> Said + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::default();
        let rule: Arc<Rule> = Arc::new(rule);
        let tracker = TaskTracker::new();
        let accepting = accept(listener, Arc::clone(&seen), rule, tracker.clone());
        Self {
            address,
            seen,
            _serving: AbortOnDropHandle::new(tracker.spawn(accepting)),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// The requests to this path.
    pub fn seen_at(&self, path: &str) -> Vec<Seen> {
        let mut seen = self.seen();
        seen.retain(|seen| seen.path() == path);
        seen
    }
}

async fn accept(
    listener: TcpListener,
    seen: Arc<Mutex<Vec<Seen>>>,
    rule: Arc<Rule>,
    tracker: TaskTracker,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (seen, rule) = (Arc::clone(&seen), Arc::clone(&rule));
        tracker.spawn(async move {
            let service = service_fn(|request| answer(request, &seen, &*rule));
            // A broken connection is up to the client.
            _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    all: &Mutex<Vec<Seen>>,
    rule: &Rule,
) -> Result<Response<Either<Full<Bytes>, Scroll>>, Infallible> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "bounded")]
    let body = Limited::new(body, MAX_BODY).collect().await;
    let body = body
        .map(|body| body.to_bytes().to_vec())
        .unwrap_or_default();
    let seen = Seen {
        method: head.method,
        target: head.uri.to_string(),
        headers: head.headers,
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    all.lock().push(seen.clone());
    let said = rule(&seen);
    if let Some(gate) = &said.gate {
        gate.pass().await;
    }
    Ok(said.response())
}

// === impl Seen ===

impl Seen {
    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A header as text; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }

    /// Answers this JSON-RPC request with a result; 202 without a body for a notification.
    pub fn result(&self, result: &Value) -> Said {
        match &self.json()["id"] {
            Value::Null => Said::status(202),
            id => Said::json(&serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result})),
        }
    }
}

// === impl Said ===

impl Said {
    /// A status and nothing else.
    pub fn status(status: u16) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: String::new(),
            scroll: None,
            gate: None,
        }
    }

    /// 200 with JSON.
    pub fn json(body: &Value) -> Self {
        Self {
            body: body.to_string(),
            ..Self::status(200).with("content-type", "application/json")
        }
    }

    /// 200 with a stream of events that continues until the pen is dropped.
    pub fn events() -> (Self, Pen) {
        let (pen, parts) = mpsc::unbounded_channel();
        let said = Self {
            scroll: Some(Scroll::new(parts)),
            ..Self::status(200).with("content-type", "text/event-stream")
        };
        (said, Pen::new(pen))
    }

    /// The same with another status.
    #[must_use]
    pub fn instead(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// 200 with this text as JSON, valid or not.
    pub fn json_text(body: &str) -> Self {
        Self {
            body: body.to_owned(),
            ..Self::json(&Value::Null)
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same once this gate is open.
    #[must_use]
    pub fn behind(mut self, gate: &Gate) -> Self {
        self.gate = Some(gate.clone());
        self
    }

    #[expect(clippy::expect_used, reason = "a mistake in the test itself")]
    fn response(self) -> Response<Either<Full<Bytes>, Scroll>> {
        let body = match self.scroll {
            Some(scroll) => Either::Right(scroll),
            None => Either::Left(Full::from(self.body)),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).expect("a status");
        for (name, value) in self.headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            let value = value.parse().expect("a header value");
            response.headers_mut().append(name, value);
        }
        response
    }
}

// === impl Gate ===

impl Gate {
    /// Holds everything back from now on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Releases everything that waits, and everything later.
    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// How many responses have waited so far.
    pub fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    async fn pass(&self) {
        let mut closed = self.closed.subscribe();
        if !*closed.borrow_and_update() {
            return;
        }
        self.waiting.send_modify(|waiting| *waiting += 1);
        // It cannot be dropped: this is one of it.
        _ = closed.wait_for(|closed| !closed).await;
        self.waiting.send_modify(|waiting| *waiting -= 1);
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}
