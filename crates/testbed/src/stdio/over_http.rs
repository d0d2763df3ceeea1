//! The server over streamable HTTP: one for each session. An answer that comes first is JSON, anything else a
//! stream. It has no event ids, so that nothing can be resumed.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::Server;
use crate::scripted::Scroll;

const SESSION_ID: &str = "mcp-session-id";
const MAX_BODY: usize = 16 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The server, on a port of its own.
#[derive(Debug)]
pub struct OverHttp {
    address: SocketAddr,
    sessions: Arc<Sessions>,
    _serving: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Sessions {
    tally: PathBuf,
    open: Mutex<HashMap<String, Session>>,
    born: AtomicU64,
    tasks: TaskTracker,
}

#[derive(Debug, Clone)]
struct Session {
    server: Arc<Server>,
    streams: Arc<Streams>,
}

/// Where the messages of a session go.
#[derive(Debug, Default)]
struct Streams(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    /// The newest last.
    calls: Vec<Call>,
    listener: Option<Stream>,
}

#[derive(Debug)]
struct Call {
    id: Value,
    token: Value,
    stream: Stream,
}

type Stream = mpsc::UnboundedSender<Value>;

/// What the server writes to. One line is written at once.
struct Outlet(Arc<Streams>);

// === impl OverHttp ===

impl OverHttp {
    /// Listens on a free loopback port, and writes down what ran.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn start(tally: PathBuf) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let tasks = TaskTracker::new();
        let sessions = Arc::new(Sessions {
            tally,
            open: Mutex::default(),
            born: AtomicU64::new(1),
            tasks: tasks.clone(),
        });
        let accepting = accept(listener, Arc::clone(&sessions));
        Ok(Self {
            address,
            sessions,
            _serving: AbortOnDropHandle::new(tasks.spawn(accepting)),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.open.lock().len()
    }

    /// Forgets all sessions, and breaks their connections.
    pub fn forget(&self) {
        let sessions = std::mem::take(&mut *self.sessions.open.lock());
        for session in sessions.into_values() {
            *session.streams.0.lock() = Open::default();
        }
    }
}

async fn accept(listener: TcpListener, sessions: Arc<Sessions>) {
    while let Ok((connection, _)) = listener.accept().await {
        let tasks = sessions.tasks.clone();
        let sessions = Arc::clone(&sessions);
        tasks.spawn(async move {
            let service = service_fn(|request| answer(request, &sessions));
            let serving = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            drop(serving.await);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    sessions: &Sessions,
) -> Result<Response<Scroll>, Failure> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "bounded")]
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    if message["method"] == "initialize" {
        return sessions.open(message).await;
    }
    let id = head.headers.get(SESSION_ID).and_then(|id| id.to_str().ok());
    let session = id.and_then(|id| sessions.open.lock().get(id).cloned());
    let (Some(id), Some(session)) = (id, session) else {
        return Ok(status(StatusCode::NOT_FOUND));
    };
    Ok(match head.method {
        Method::POST => return sessions.post(session, message).await,
        Method::GET => sessions.stream(None, session.streams.listen()),
        Method::DELETE => {
            sessions.open.lock().remove(id);
            session.server.note("end");
            status(StatusCode::OK)
        }
        _ => status(StatusCode::METHOD_NOT_ALLOWED),
    })
}

// === impl Sessions ===

impl Sessions {
    async fn open(&self, message: Value) -> Result<Response<Scroll>, Failure> {
        let id = format!("session-{}", self.born.fetch_add(1, Ordering::Relaxed));
        let streams = Arc::<Streams>::default();
        let session = Session {
            server: Server::new(Outlet(Arc::clone(&streams)), Some(self.tally.clone())),
            streams,
        };
        self.open.lock().insert(id.clone(), session.clone());
        let mut response = self.post(session, message).await?;
        response.headers_mut().insert(SESSION_ID, id.parse()?);
        Ok(response)
    }

    async fn post(&self, session: Session, message: Value) -> Result<Response<Scroll>, Failure> {
        let is_request = message.get("id").is_some() && message.get("method").is_some();
        if !is_request {
            Server::take(&session.server, message);
            return Ok(status(StatusCode::ACCEPTED));
        }
        let mut messages = session.streams.call(&message);
        Server::take(&session.server, message);
        // Whoever forgets the session breaks the connection.
        let first = messages.recv().await.ok_or("forgotten")?;
        if first.get("method").is_none() {
            return Ok(json(&first));
        }
        Ok(self.stream(Some(&first), messages))
    }

    fn stream(
        &self,
        first: Option<&Value>,
        mut messages: mpsc::UnboundedReceiver<Value>,
    ) -> Response<Scroll> {
        let (parts, body) = mpsc::unbounded_channel();
        if let Some(first) = first {
            drop(parts.send(Ok(event(first))));
        }
        self.tasks.spawn(async move {
            while let Some(message) = messages.recv().await {
                let is_over = parts.send(Ok(event(&message))).is_err();
                if is_over || message.get("method").is_none() {
                    return;
                }
            }
            drop(parts.send(Err(io::ErrorKind::ConnectionReset.into())));
        });
        let mut response = Response::new(Scroll::new(body));
        let events = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert("content-type", events);
        response
    }
}

// === impl Streams ===

impl Streams {
    fn call(&self, request: &Value) -> mpsc::UnboundedReceiver<Value> {
        let (stream, messages) = mpsc::unbounded_channel();
        self.0.lock().calls.push(Call {
            id: request["id"].clone(),
            token: request["params"]["_meta"]["progressToken"].clone(),
            stream,
        });
        messages
    }

    fn listen(&self) -> mpsc::UnboundedReceiver<Value> {
        let (stream, messages) = mpsc::unbounded_channel();
        self.0.lock().listener = Some(stream);
        messages
    }

    /// An answer and progress go to their call, everything else to the listener or else to the newest call.
    fn deliver(&self, message: Value) {
        let mut open = self.0.lock();
        let to = if message.get("method").is_none() {
            let at = open.calls.iter().position(|call| call.id == message["id"]);
            at.map(|at| open.calls.remove(at).stream)
        } else {
            let token = &message["params"]["progressToken"];
            let is_its = |call: &&Call| !token.is_null() && call.token == *token;
            let call = open.calls.iter().find(is_its);
            let other = || open.calls.last().map(|call| &call.stream);
            let to = call.map(|call| &call.stream);
            to.or(open.listener.as_ref()).or_else(other).cloned()
        };
        if let Some(to) = to {
            drop(to.send(message));
        }
    }
}

// === impl Outlet ===

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Ok(message) = serde_json::from_slice(bytes) {
            self.0.deliver(message);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn event(message: &Value) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}

fn json(message: &Value) -> Response<Scroll> {
    let mut response = whole(message.to_string().into());
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert("content-type", json);
    response
}

fn status(status: StatusCode) -> Response<Scroll> {
    let mut response = whole(Bytes::new());
    *response.status_mut() = status;
    response
}

fn whole(body: Bytes) -> Response<Scroll> {
    let (parts, scroll) = mpsc::unbounded_channel();
    let length = body.len();
    drop(parts.send(Ok(body)));
    let mut response = Response::new(Scroll::new(scroll));
    response
        .headers_mut()
        .insert("content-length", length.into());
    response
}
