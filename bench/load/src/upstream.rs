//! A small stateful MCP server that costs as little as it can, so that the proxies' cost shows.

mod streams;

use std::cell::RefCell;
use std::collections::HashSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use self::streams::Streams;
use crate::client::{self, SESSION_ID};
use crate::echo::{self, Kind};

/// The options of `bowline-bench upstream`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Serve here
    #[arg(long)]
    listen: SocketAddr,
    /// How many tools to list that nobody calls
    #[arg(long, default_value_t = 0)]
    more_tools: usize,
}

/// The sessions that are open here.
#[derive(Debug)]
struct Sessions {
    /// Where "here" is.
    at: SocketAddr,
    more_tools: usize,
    open: HashSet<Box<[u8]>>,
    /// How many were ever opened.
    opened: u64,
    streams: RefCell<Streams>,
}

/// What the server looks at in a message.
#[derive(Deserialize)]
pub(crate) struct Message<'a> {
    #[serde(borrow)]
    pub(crate) id: Option<&'a RawValue>,
    pub(crate) method: &'a str,
    #[serde(borrow)]
    params: Option<Params<'a>>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: Option<&'a str>,
    #[serde(borrow)]
    arguments: Option<Echo<'a>>,
}

#[derive(Deserialize)]
pub(crate) struct Echo<'a> {
    #[serde(borrow)]
    pub(crate) text: &'a RawValue,
    #[serde(default)]
    filling: usize,
}

/// A body that is there at once, or one that says one thing and then stays open, or goes on.
#[derive(Debug)]
struct Reply {
    first: Option<Bytes>,
    stays_open: bool,
    more: Option<mpsc::UnboundedReceiver<Bytes>>,
    /// Whether the length is told, as JSON's is and an event stream's is not.
    sized: bool,
}

const MAX_BODY: usize = 64 * 1024;
const MAX_FILLING: usize = 16 * 1024 * 1024;

/// Serves until killed.
pub(crate) async fn serve(arguments: &Arguments) -> anyhow::Result<serde_json::Value> {
    let listener = TcpListener::bind(arguments.listen)
        .await
        .with_context(|| format!("cannot listen on {}", arguments.listen))?;
    let local = LocalSet::new();
    local.run_until(accept(listener, arguments)).await
}

async fn accept(listener: TcpListener, arguments: &Arguments) -> anyhow::Result<serde_json::Value> {
    let sessions = Rc::new(RefCell::new(Sessions {
        at: arguments.listen,
        more_tools: arguments.more_tools,
        open: HashSet::new(),
        opened: 0,
        streams: RefCell::default(),
    }));
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::task::spawn_local(connection(stream, Rc::clone(&sessions)));
    }
}

async fn connection(stream: TcpStream, sessions: Rc<RefCell<Sessions>>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(|request| answer(&sessions, request));
    // A client that leaves is no news here.
    _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    sessions: &RefCell<Sessions>,
    request: Request<Incoming>,
) -> anyhow::Result<Response<Reply>> {
    let (head, body) = request.into_parts();
    if head.uri.path() == "/opened" {
        let opened = sessions.borrow().opened;
        return Ok(reply(StatusCode::OK, Reply::whole(opened.to_string())));
    }
    match (&head.method, head.uri.path()) {
        (&Method::GET, streams::PATH) => return Ok(streams::open(&sessions.borrow().streams)),
        (&Method::POST, streams::MESSAGES) => {
            let body = client::read(body, MAX_BODY).await?;
            return Ok(streams::post(&sessions.borrow().streams, &head.uri, &body));
        }
        _ => {}
    }
    let known = knows(&sessions.borrow(), &head.headers);
    match (head.method, known) {
        (Method::POST, known) => {
            let body = client::read(body, MAX_BODY).await?;
            Ok(post(sessions, known, &body))
        }
        (Method::GET, true) => Ok(events(Reply {
            stays_open: true,
            sized: false,
            ..Reply::whole(": held\n\n".to_owned())
        })),
        (Method::DELETE, true) => {
            if let Some(id) = head.headers.get(SESSION_ID) {
                sessions.borrow_mut().open.remove(id.as_bytes());
            }
            Ok(reply(StatusCode::NO_CONTENT, Reply::empty()))
        }
        (Method::GET | Method::DELETE, false) => Ok(reply(StatusCode::NOT_FOUND, Reply::empty())),
        _ => {
            let mut response = reply(StatusCode::METHOD_NOT_ALLOWED, Reply::empty());
            let allow = HeaderValue::from_static("GET, POST, DELETE");
            response.headers_mut().insert(ALLOW, allow);
            Ok(response)
        }
    }
}

fn knows(sessions: &Sessions, headers: &HeaderMap) -> bool {
    let id = headers.get(SESSION_ID);
    id.is_some_and(|id| sessions.open.contains(id.as_bytes()))
}

fn post(sessions: &RefCell<Sessions>, known: bool, body: &[u8]) -> Response<Reply> {
    let Ok(message) = serde_json::from_slice::<Message<'_>>(body) else {
        return reply(StatusCode::BAD_REQUEST, Reply::empty());
    };
    if let ("initialize", Some(id)) = (message.method, message.id) {
        return sessions.borrow_mut().open(id.get());
    }
    if !known {
        return reply(StatusCode::NOT_FOUND, Reply::empty());
    }
    let Some(id) = message.id else {
        return reply(StatusCode::ACCEPTED, Reply::empty());
    };
    if message.method == "tools/list" {
        let Sessions { at, more_tools, .. } = *sessions.borrow();
        return json(echo::list(id.get(), at, more_tools));
    }
    let Some((tool, echo)) = message.called() else {
        return reply(StatusCode::BAD_REQUEST, Reply::empty());
    };
    let result = echo::answer(id.get(), echo.text.get(), echo.filling.min(MAX_FILLING));
    if tool == Kind::Sse.tool() {
        let event = format!("event: message\ndata: {result}\n\n");
        return events(Reply {
            sized: false,
            ..Reply::whole(event)
        });
    }
    json(result)
}

impl<'a> Message<'a> {
    /// The tool that is called, and with what.
    pub(crate) fn called(self) -> Option<(&'a str, Echo<'a>)> {
        let params = self.params?;
        Some((params.name?, params.arguments?))
    }
}

impl Sessions {
    fn open(&mut self, id: &str) -> Response<Reply> {
        self.opened += 1;
        // Unlike any other process's ids, as a real server's are.
        let name = format!("bench-{:08x}-{:020x}", std::process::id(), self.opened);
        let mut response = json(echo::initialized(id));
        if let Ok(value) = HeaderValue::from_str(&name) {
            response.headers_mut().insert(SESSION_ID, value);
        }
        self.open.insert(name.into_bytes().into());
        response
    }
}

fn json(body: String) -> Response<Reply> {
    let mut response = reply(StatusCode::OK, Reply::whole(body));
    let media = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, media);
    response
}

fn events(body: Reply) -> Response<Reply> {
    let mut response = reply(StatusCode::OK, body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn reply(status: StatusCode, body: Reply) -> Response<Reply> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
}

// === impl Reply ===

impl Reply {
    fn whole(text: String) -> Self {
        Self {
            first: Some(text.into()),
            stays_open: false,
            more: None,
            sized: true,
        }
    }

    const fn empty() -> Self {
        Self {
            first: None,
            stays_open: false,
            more: None,
            sized: true,
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.first.is_none()
            && let Some(more) = &mut self.more
        {
            let next = more.poll_recv(cx);
            return next.map(|part| part.map(|part| Ok(Frame::data(part))));
        }
        match self.first.take() {
            Some(bytes) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            // Nobody is woken: only the client ends it.
            None if self.stays_open => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.more.is_none() && !self.stays_open
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized {
            SizeHint::with_exact(self.first.as_ref().map_or(0, |bytes| bytes.len() as u64))
        } else {
            SizeHint::default()
        }
    }
}
