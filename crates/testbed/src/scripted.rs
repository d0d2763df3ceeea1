//! A server that the test answers for: every request waits until the test handles it.
//!
//! Nothing is answered by default, so an unexpected request cannot pass unnoticed: it keeps waiting, and
//! [`Scripted::finish`] fails because of it. The one exception are the lists of tools that the gateway asks for
//! by itself, in the background: they are answered, at first with no tools, and counted.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// How long a test waits for something that must happen: long enough for a machine that is busy with much else.
pub const PATIENCE: Duration = Duration::from_secs(60);

const MAX_BODY: usize = 64 * 1024 * 1024;

/// A server whose requests are answered by the test.
#[derive(Debug)]
pub struct Scripted {
    url: String,
    asked: mpsc::UnboundedReceiver<Asked>,
    own_lists: watch::Sender<OwnLists>,
    _serving: AbortOnDropHandle<()>,
}

/// The lists of tools that the gateway asks for by itself: what answers them, and how many there were.
#[derive(Debug, Clone)]
struct OwnLists {
    result: Value,
    count: usize,
}

/// A request that waits for the test's response. Dropping it breaks the connection.
#[derive(Debug)]
pub struct Asked {
    /// The request's method.
    pub method: Method,
    /// Path and query, unchanged.
    pub target: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    answer: oneshot::Sender<Response<Scroll>>,
}

/// A response's body: some bytes now, and more when the test sends them.
#[derive(Debug)]
pub struct Scroll {
    parts: mpsc::UnboundedReceiver<io::Result<Bytes>>,
    /// The bytes before the parts.
    first: Option<Bytes>,
    escapes_slashes: bool,
    /// A break that waits until the data before it was sent.
    broken: Option<io::Error>,
}

/// The test's end of a streamed body. Dropping it ends the body.
#[derive(Debug)]
pub struct Pen(mpsc::UnboundedSender<io::Result<Bytes>>);

// === impl Scripted ===

impl Scripted {
    /// Listens on a free loopback port.
    ///
    /// # Panics
    ///
    /// When there is none.
    #[expect(clippy::expect_used, reason = "a test without a port cannot go on")]
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
        let (sender, asked) = mpsc::unbounded_channel();
        let tracker = TaskTracker::new();
        let own_lists = watch::Sender::new(OwnLists {
            result: serde_json::json!({"tools": []}),
            count: 0,
        });
        let accepting = accept(listener, sender, own_lists.clone(), tracker.clone());
        let serving = tracker.spawn(accepting);
        Self {
            url,
            asked,
            own_lists,
            _serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers the gateway's own lists of tools with this result from now on.
    pub fn lists(&self, result: &Value) {
        let result = result.clone();
        self.own_lists.send_modify(|lists| lists.result = result);
    }

    /// How many lists of tools the gateway has asked for by itself.
    pub fn own_lists(&self) -> usize {
        self.own_lists.borrow().count
    }

    /// Waits until the gateway has asked for so many lists of tools by itself.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[expect(clippy::expect_used, reason = "a test that waits in vain has failed")]
    pub async fn has_listed(&self, times: usize) {
        let mut lists = self.own_lists.subscribe();
        let listed = lists.wait_for(|lists| lists.count >= times);
        let listed = tokio::time::timeout(PATIENCE, listed).await;
        drop(listed.expect("a list of the gateway's own in time"));
    }

    /// The next request.
    ///
    /// # Panics
    ///
    /// When none comes.
    #[expect(clippy::expect_used, reason = "a test that waits in vain has failed")]
    pub async fn next(&mut self) -> Asked {
        let asked = tokio::time::timeout(PATIENCE, self.asked.recv()).await;
        asked.expect("a request in time").expect("a running server")
    }

    /// Ends the script.
    ///
    /// # Panics
    ///
    /// When the test did not handle a request.
    pub fn finish(mut self) {
        let unexpected = self.asked.try_recv().ok();
        let unexpected = unexpected.map(|asked| format!("{} {:?}", asked.method, asked.body));
        assert_eq!(unexpected, None, "a request that the test did not expect");
    }
}

async fn accept(
    listener: TcpListener,
    asked: mpsc::UnboundedSender<Asked>,
    own_lists: watch::Sender<OwnLists>,
    tracker: TaskTracker,
) {
    while let Ok((stream, _)) = listener.accept().await {
        _ = stream.set_nodelay(true);
        let (asked, own_lists) = (asked.clone(), own_lists.clone());
        tracker.spawn(async move {
            let service = service_fn(|request| ask(request, asked.clone(), &own_lists));
            // Tests break connections on purpose.
            _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn ask(
    request: Request<Incoming>,
    asked: mpsc::UnboundedSender<Asked>,
    own_lists: &watch::Sender<OwnLists>,
) -> Result<Response<Scroll>, Box<dyn std::error::Error + Send + Sync>> {
    let (head, body) = request.into_parts();
    #[expect(clippy::disallowed_methods, reason = "bounded")]
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let (answer, answered) = oneshot::channel();
    let request = Asked {
        method: head.method,
        target: head.uri.to_string(),
        headers: head.headers,
        body,
        answer,
    };
    match request.is_own_list() {
        true => {
            let result = own_lists.borrow().result.clone();
            request.result(&result);
            own_lists.send_modify(|lists| lists.count += 1);
        }
        false => asked.send(request)?,
    }
    Ok(answered.await?)
}

// === impl Asked ===

impl Asked {
    /// Waits until the gateway gives up the request without a response.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[expect(clippy::expect_used, reason = "a test that waits in vain has failed")]
    pub async fn given_up(mut self) {
        let given_up = tokio::time::timeout(PATIENCE, self.answer.closed()).await;
        given_up.expect("the request to be given up");
    }

    /// The request's body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method in the body.
    pub fn rpc_method(&self) -> String {
        self.json()["method"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Whether the gateway lists the tools by itself.
    fn is_own_list(&self) -> bool {
        let id = &self.json()["id"];
        id.as_str()
            .is_some_and(|id| id.starts_with("bowline-tools-"))
    }

    /// A header as text; empty if it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    /// Answers with this status, these headers and this body, whose length is announced.
    pub fn reply(self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        let body = body.into();
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        if status != 204 {
            headers.push(("content-length", &length));
        }
        let mut pen = self.begin(status, &headers);
        pen.write(body);
    }

    /// Answers 200 with a JSON-RPC result for this request.
    pub fn result(self, result: &Value) {
        self.result_with(&[], result);
    }

    /// The same with more headers.
    pub fn result_with(self, headers: &[(&str, &str)], result: &Value) {
        let id = &self.json()["id"];
        let body = serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result});
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.reply(200, &headers, body.to_string());
    }

    /// Answers `initialize` as a server of 2025-11-25 does, with this session id if there is one.
    pub fn initialized(self, session_id: Option<&str>) {
        let headers: Vec<_> = session_id
            .iter()
            .map(|id| ("mcp-session-id", *id))
            .collect();
        self.result_with(&headers, &initialize_result());
    }

    /// Answers 200 with a stream of events that the test continues to write.
    pub fn events(self) -> Pen {
        self.begin(200, &[("content-type", "text/event-stream")])
    }

    /// Answers with a head. The test writes the body, whose length is not announced.
    ///
    /// # Panics
    ///
    /// When a status or header is not valid.
    #[expect(clippy::expect_used, reason = "a mistake in the test itself")]
    pub fn begin(self, status: u16, headers: &[(&str, &str)]) -> Pen {
        let (pen, parts) = mpsc::unbounded_channel();
        let mut response = Response::new(Scroll::new(parts));
        *response.status_mut() = StatusCode::from_u16(status).expect("a status");
        for (name, value) in headers {
            let name = http::HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            response
                .headers_mut()
                .append(name, value.parse().expect("a header value"));
        }
        // If the gateway has closed the connection, the response is dropped.
        drop(self.answer.send(response));
        Pen(pen)
    }
}

/// The response of a 2025-11-25 server to `initialize`.
pub fn initialize_result() -> Value {
    serde_json::json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "scripted", "version": "1"},
    })
}

/// The same of a server without tools, which the gateway never lists by itself.
pub fn initialize_result_without_tools() -> Value {
    let mut result = initialize_result();
    result["capabilities"] = serde_json::json!({});
    result
}

// === impl Pen ===

impl Pen {
    /// A writer for a body of [`Scroll::new`].
    pub(crate) fn new(parts: mpsc::UnboundedSender<io::Result<Bytes>>) -> Self {
        Self(parts)
    }

    /// Sends more of the body.
    pub fn write(&mut self, bytes: impl Into<Bytes>) {
        drop(self.0.send(Ok(bytes.into())));
    }

    /// Breaks the connection in the middle of the body.
    pub fn cut(self) {
        drop(self.0.send(Err(io::ErrorKind::ConnectionReset.into())));
    }

    /// Waits until the gateway has closed the connection.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[expect(clippy::expect_used, reason = "a test that waits in vain has failed")]
    pub async fn closed(&self) {
        let closed = tokio::time::timeout(PATIENCE, self.0.closed()).await;
        closed.expect("the stream to be closed");
    }

    /// Whether the gateway still reads.
    pub fn is_open(&self) -> bool {
        !self.0.is_closed()
    }
}

// === impl Scroll ===

impl Scroll {
    /// A body of what is sent here; it ends when the sender is dropped.
    pub(crate) fn new(parts: mpsc::UnboundedReceiver<io::Result<Bytes>>) -> Self {
        Self {
            parts,
            first: None,
            escapes_slashes: false,
            broken: None,
        }
    }

    /// The same with every slash written `\/`, as PHP and others write JSON, and the length of what is
    /// there already.
    pub(crate) fn escaping_slashes(mut self) -> (Self, usize) {
        let mut first = Vec::new();
        while let Ok(Ok(part)) = self.parts.try_recv() {
            first.extend_from_slice(&escaped(&part));
        }
        let length = first.len();
        self.first = Some(first.into()).filter(|_| length > 0);
        self.escapes_slashes = true;
        (self, length)
    }
}

impl Body for Scroll {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if let Some(error) = self.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let escapes = self.escapes_slashes;
        let written = |part: Bytes| if escapes { escaped(&part) } else { part };
        match std::task::ready!(self.parts.poll_recv(cx)) {
            Some(Err(error)) => {
                self.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            part => Poll::Ready(part.map(|part| part.map(|part| Frame::data(written(part))))),
        }
    }
}

fn escaped(part: &[u8]) -> Bytes {
    part.iter()
        .flat_map(|byte| match byte {
            b'/' => &br"\/"[..],
            other => std::slice::from_ref(other),
        })
        .copied()
        .collect()
}
