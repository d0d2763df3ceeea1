//! A server that answers by a rule of the test's, and remembers everything that it was asked.

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
    /// Path and query as they stood on the request line.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
}

/// What a rule says to a request.
#[derive(Debug)]
pub struct Said {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    /// The body instead, if it has no end yet.
    scroll: Option<Scroll>,
    /// What it waits for.
    gate: Option<Gate>,
}

/// Where answers wait while it is closed.
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

    /// Everything that it was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// What it was asked at this path.
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
            // A broken connection is the other side's affair.
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

    /// Answers this JSON-RPC request with a result; nothing but 202 if it is a notification.
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

    /// 200 with a stream of events that goes on until the pen is dropped.
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

    /// 200 with this for JSON, whatever it is.
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
    /// Lets nothing through from now on.
    pub fn close(&self) {
        self.closed.send_replace(true);
    }

    /// Lets everything through that waits, and whatever comes.
    pub fn open(&self) {
        self.closed.send_replace(false);
    }

    /// How many answers wait, or have waited in vain.
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
