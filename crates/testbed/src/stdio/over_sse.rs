//! The server over HTTP+SSE (2024-11-05): a GET opens a stream, which is the session, and its first event names the
//! URL for messages. It is strict about what a client sends, and can be told to misbehave.

mod manners;
mod streams;

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

pub use self::manners::Manners;
use self::streams::Parts;
pub use self::streams::Streams;
use super::Server;
use crate::scripted::Scroll;

const MAX_BODY: usize = 16 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The server, on a port of its own.
#[derive(Debug)]
pub struct OverSse {
    address: SocketAddr,
    sessions: Arc<Sessions>,
    _serving: AbortOnDropHandle<()>,
    /// Breaks all connections.
    _alive: DropGuard,
}

#[derive(Debug)]
struct Sessions {
    tally: PathBuf,
    open: Mutex<HashMap<String, Session>>,
    /// Sessions whose streams are still open.
    forgotten: Mutex<Vec<Session>>,
    born: AtomicU64,
    manners: Mutex<Manners>,
    complaints: Mutex<Vec<String>>,
    gets: AtomicUsize,
    wrong_posts: AtomicUsize,
    targets: Mutex<Vec<String>>,
    cookies: Mutex<Vec<String>>,
    tasks: TaskTracker,
}

#[derive(Debug, Clone)]
struct Session {
    server: Arc<Server>,
    outlet: Outlet,
    /// Ends the stream.
    end: CancellationToken,
}

/// The stream that the server writes to. One line is written at once.
#[derive(Debug, Clone)]
struct Outlet {
    parts: Parts,
    written: Arc<tokio::sync::Notify>,
}

// === impl OverSse ===

impl OverSse {
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
            forgotten: Mutex::default(),
            born: AtomicU64::new(1),
            manners: Mutex::default(),
            complaints: Mutex::default(),
            gets: AtomicUsize::new(0),
            wrong_posts: AtomicUsize::new(0),
            targets: Mutex::default(),
            cookies: Mutex::default(),
            tasks: tasks.clone(),
        });
        let dead = CancellationToken::new();
        let accepting = accept(listener, Arc::clone(&sessions), dead.clone());
        Ok(Self {
            address,
            sessions,
            _serving: AbortOnDropHandle::new(tasks.spawn(accepting)),
            _alive: dead.drop_guard(),
        })
    }

    /// Where its stream is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/sse", self.address)
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.open.lock().len()
    }

    /// How many streams were asked for.
    #[must_use]
    pub fn gets(&self) -> usize {
        self.sessions.gets.load(Ordering::Relaxed)
    }

    /// How many messages were posted to the stream's URL.
    #[must_use]
    pub fn wrong_posts(&self) -> usize {
        self.sessions.wrong_posts.load(Ordering::Relaxed)
    }

    /// The targets of all messages.
    #[must_use]
    pub fn targets(&self) -> Vec<String> {
        self.sessions.targets.lock().clone()
    }

    /// The cookies of all messages that had any.
    #[must_use]
    pub fn cookies(&self) -> Vec<String> {
        self.sessions.cookies.lock().clone()
    }

    /// What a client did wrong.
    #[must_use]
    pub fn complaints(&self) -> Vec<String> {
        self.sessions.complaints.lock().clone()
    }

    /// Changes how it behaves from now on.
    pub fn behave(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.sessions.manners.lock());
    }

    /// Forgets all sessions, and breaks their streams.
    pub fn forget(&self) {
        let sessions = std::mem::take(&mut *self.sessions.open.lock());
        for session in sessions.into_values() {
            let broken = Err(io::ErrorKind::ConnectionReset.into());
            drop(session.outlet.parts.send(broken));
        }
    }

    /// Forgets all sessions, and leaves their streams open.
    pub fn forget_in_silence(&self) {
        let sessions = std::mem::take(&mut *self.sessions.open.lock());
        self.sessions
            .forgotten
            .lock()
            .extend(sessions.into_values());
    }

    /// Ends all streams as if the server were done with them.
    pub fn end_streams(&self) {
        let sessions = std::mem::take(&mut *self.sessions.open.lock());
        sessions.values().for_each(|session| session.end.cancel());
    }

    /// Writes bytes to all streams.
    pub fn inject(&self, bytes: &[u8]) {
        self.streams().write(bytes);
    }

    /// The streams that are open now.
    #[must_use]
    pub fn streams(&self) -> Streams {
        let open = self.sessions.open.lock();
        Streams::new(open.values().map(|session| session.outlet.parts.clone()))
    }
}

async fn accept(listener: TcpListener, sessions: Arc<Sessions>, dead: CancellationToken) {
    while let Ok((connection, _)) = listener.accept().await {
        let tasks = sessions.tasks.clone();
        let (sessions, dead) = (Arc::clone(&sessions), dead.clone());
        tasks.spawn(async move {
            let service = service_fn(|request| answer(request, &sessions));
            let serving = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            drop(dead.run_until_cancelled(serving).await);
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    sessions: &Arc<Sessions>,
) -> Result<Response<Scroll>, Failure> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "bounded")]
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let manners = sessions.manners.lock().clone();
    let authorization = head.headers.get(http::header::AUTHORIZATION);
    let authorization = authorization.and_then(|value| value.to_str().ok());
    if manners.authorization.is_some() && manners.authorization.as_deref() != authorization {
        return with(
            status(401),
            "www-authenticate",
            manners.challenge.as_deref(),
        );
    }
    match (head.method, head.uri.path()) {
        (Method::GET, "/sse") if manners.moved.is_some() => {
            with(status(307), "location", manners.moved.as_deref())
        }
        (Method::GET, "/sse" | "/deep/sse") => sessions.open(&head.headers, &manners),
        (Method::POST, "/sse") => {
            sessions.wrong_posts.fetch_add(1, Ordering::Relaxed);
            status(manners.wrong_post)
        }
        (Method::POST, "/messages" | "/deep/messages") => {
            sessions.targets.lock().push(head.uri.to_string());
            let query = head.uri.query().unwrap_or_default().split('&');
            let mut ids = query.filter_map(|part| part.strip_prefix("session_id="));
            let session = ids.next().and_then(|id| {
                let open = sessions.open.lock();
                Some((id.to_owned(), open.get(id)?.clone()))
            });
            match session {
                Some((id, session)) => {
                    sessions
                        .post(&id, session, &head.headers, &body, &manners)
                        .await
                }
                None => status(404),
            }
        }
        _ => status(404),
    }
}

// === impl Sessions ===

impl Sessions {
    fn open(
        self: &Arc<Self>,
        headers: &HeaderMap,
        manners: &Manners,
    ) -> Result<Response<Scroll>, Failure> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        if headers
            .get(ACCEPT)
            .is_none_or(|it| it != "text/event-stream")
        {
            self.complain("a GET does not accept an event stream");
        }
        if let Some(refused) = manners.get {
            return status(refused);
        }
        let id = self.born.fetch_add(1, Ordering::Relaxed).to_string();
        let (parts, mut written) = mpsc::unbounded_channel();
        if let Some(endpoint) = &manners.endpoint {
            let endpoint = endpoint.replace("{id}", &id);
            let event = format!(": hello\n\nevent: endpoint\ndata: {endpoint}\n\n");
            drop(parts.send(Ok(event.into())));
        }
        let outlet = Outlet {
            parts,
            written: Arc::default(),
        };
        let end = CancellationToken::new();
        let session = Session {
            server: Server::new(outlet.clone(), Some(self.tally.clone())),
            outlet,
            end: end.clone(),
        };
        self.open.lock().insert(id.clone(), session);
        let (stream, body) = mpsc::unbounded_channel();
        let (sessions, gone) = (Arc::clone(self), id.clone());
        self.tasks.spawn(async move {
            loop {
                let part = tokio::select! {
                    part = written.recv() => part,
                    () = stream.closed() => None,
                    () = end.cancelled() => None,
                };
                let Some(part) = part else { break };
                let is_broken = part.is_err();
                if stream.send(part).is_err() || is_broken {
                    break;
                }
            }
            sessions.open.lock().remove(&gone);
        });
        let mut response = Response::new(Scroll::new(body));
        let events = HeaderValue::from_static("text/event-stream");
        response.headers_mut().insert(CONTENT_TYPE, events);
        let cookie = format!("replica={id}; Path=/");
        response.headers_mut().insert(SET_COOKIE, cookie.parse()?);
        Ok(response)
    }

    async fn post(
        &self,
        id: &str,
        session: Session,
        headers: &HeaderMap,
        body: &Bytes,
        manners: &Manners,
    ) -> Result<Response<Scroll>, Failure> {
        let text = |name| {
            headers
                .get(name)
                .and_then(|it: &HeaderValue| it.to_str().ok())
        };
        if text(CONTENT_TYPE) != Some("application/json") {
            self.complain("a message is not sent as JSON");
        }
        if headers.contains_key("mcp-session-id") {
            self.complain("a message has a session id in its head");
        }
        self.cookies.lock().extend(text(COOKIE).map(str::to_owned));
        let cookie = format!("replica={id}");
        if !text(COOKIE).unwrap_or_default().contains(&cookie) {
            self.complain("a message lacks the stream's cookie");
        }
        let message: Value = serde_json::from_slice(body)?;
        if !message.is_object() {
            self.complain("a message is not an object");
        }
        if let Some((refused, is_taken)) = manners.post {
            if is_taken {
                Server::take(&session.server, message);
                if let Some(signal) = &manners.refuses_at {
                    signal.notified().await;
                }
            }
            return status(refused);
        }
        let written = session.outlet.written.notified();
        Server::take(&session.server, message);
        if manners.answers_late {
            written.await;
            // So that what was written is read before this answer.
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        let accepted = with(
            whole(202, "Accepted"),
            "set-cookie",
            manners.cookie.as_deref(),
        );
        with(accepted, "connection", manners.closes.then_some("close"))
    }

    fn complain(&self, what: &str) {
        self.complaints.lock().push(what.to_owned());
    }
}

// === impl Outlet ===

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut event = b"event: message\r\n".to_vec();
        for line in bytes.trim_ascii_end().split(|byte| *byte == b'\n') {
            event.extend_from_slice(b"data: ");
            event.extend_from_slice(line);
            event.extend_from_slice(b"\r\n");
        }
        event.extend_from_slice(b"\r\n");
        // Nobody may read it any more.
        drop(self.parts.send(Ok(event.into())));
        self.written.notify_waiters();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The same with a header, if there is one.
fn with(
    answer: Result<Response<Scroll>, Failure>,
    name: &'static str,
    value: Option<&str>,
) -> Result<Response<Scroll>, Failure> {
    let mut answer = answer?;
    if let Some(value) = value {
        answer.headers_mut().insert(name, value.parse()?);
    }
    Ok(answer)
}

fn status(status: u16) -> Result<Response<Scroll>, Failure> {
    let text = if status == 204 { "" } else { "not that way" };
    whole(status, text)
}

fn whole(status: u16, text: &'static str) -> Result<Response<Scroll>, Failure> {
    let (parts, scroll) = mpsc::unbounded_channel();
    if !text.is_empty() {
        drop(parts.send(Ok(Bytes::from_static(text.as_bytes()))));
    }
    let mut response = Response::new(Scroll::new(scroll));
    *response.status_mut() = StatusCode::from_u16(status)?;
    let headers = response.headers_mut();
    if !text.is_empty() {
        headers.insert("content-length", text.len().into());
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
