//! An MCP client of one connection, as cheap as hyper allows.

mod line;

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

pub(crate) use self::line::Line;
use crate::echo::{self, Tool};

/// The header that names a session.
pub(crate) const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The revision that both sides speak.
pub(crate) const VERSION: &str = "2025-11-25";

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// Where a server is: the address to dial and the path to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    path: Uri,
    host: HeaderValue,
}

/// One kept connection.
#[derive(Debug)]
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
}

/// A session that the server knows.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    path: Uri,
    headers: HeaderMap,
    /// Unlike any other of this run.
    pub(crate) number: usize,
}

// === impl Target ===

impl std::str::FromStr for Target {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let url: Uri = text.parse().with_context(|| format!("bad URL {text}"))?;
        let authority = url.authority().context("no host in the URL")?.as_str();
        Ok(Self {
            address: authority.parse().context("the host must be IP:PORT")?,
            path: url.path().parse()?,
            host: HeaderValue::from_str(authority)?,
        })
    }
}

impl Target {
    /// A session here that was opened before.
    pub(crate) fn session(&self, id: &HeaderValue, number: usize) -> Session {
        let mut headers = self.headers();
        headers.insert(SESSION_ID, id.clone());
        headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(VERSION));
        Session {
            path: self.path.clone(),
            headers,
            number,
        }
    }

    fn headers(&self) -> HeaderMap {
        let both = "application/json, text/event-stream";
        HeaderMap::from_iter([
            (HOST, self.host.clone()),
            (USER_AGENT, HeaderValue::from_static("bowline-bench")),
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (ACCEPT, HeaderValue::from_static(both)),
        ])
    }
}

// === impl Session ===

impl Session {
    /// The id that the server, or the proxy before it, issued.
    pub(crate) fn id(&self) -> &str {
        let id = self.headers.get(SESSION_ID);
        id.and_then(|id| id.to_str().ok()).unwrap_or_default()
    }
}

// === impl Connection ===

impl Connection {
    /// Connects; `tasks` drives the connection.
    pub(crate) async fn open(address: SocketAddr, tasks: &TaskTracker) -> anyhow::Result<Self> {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is a client, not the gateway"
        )]
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tasks.spawn(async move {
            // Whoever waits for an answer hears of it.
            _ = connection.await;
        });
        Ok(Self { sender })
    }

    /// `initialize` and `notifications/initialized`.
    pub(crate) async fn open_session(
        &mut self,
        target: &Target,
        number: usize,
    ) -> anyhow::Result<Session> {
        let request = request(Method::POST, &target.path, target.headers(), initialize());
        let response = self.send(request).await?;
        ensure_status(&response, StatusCode::OK)?;
        let id = response.headers().get(SESSION_ID).cloned();
        let body = read(response.into_body(), MAX_ANSWER).await?;
        let answer = echo::message(&body, 0).context("initialize got no answer")?;
        ensure!(answer["result"].is_object(), "initialize got no result");
        let session = target.session(&id.context("no session id")?, number);
        let headers = session.headers.clone();
        let request = request_of(Method::POST, &session, headers, INITIALIZED.to_owned());
        let response = self.send(request).await?;
        ensure_status(&response, StatusCode::ACCEPTED)?;
        read(response.into_body(), MAX_ANSWER).await?;
        Ok(session)
    }

    /// Calls the echo tool, and looks whether the answer is the one to this call.
    pub(crate) async fn call(
        &mut self,
        session: &Session,
        tool: Tool,
        id: u64,
    ) -> anyhow::Result<()> {
        let text = echo::text(session.number, id);
        let body = echo::request(tool, id, &text);
        let request = request_of(Method::POST, session, session.headers.clone(), body);
        let response = self.send(request).await?;
        ensure_status(&response, StatusCode::OK)?;
        let answer = read(response.into_body(), MAX_ANSWER).await?;
        if !echo::is_answer(tool, &answer, id, &text) {
            bail!("not the answer: {}", String::from_utf8_lossy(&answer));
        }
        Ok(())
    }

    /// Lists the tools. Returns which server answered, or nothing if it does not know the session.
    pub(crate) async fn list_tools(
        &mut self,
        session: &Session,
        id: u64,
    ) -> anyhow::Result<Option<SocketAddr>> {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list"}}"#);
        let request = request_of(Method::POST, session, session.headers.clone(), body);
        let response = self.send(request).await?;
        let known = response.status() != StatusCode::NOT_FOUND;
        if known {
            ensure_status(&response, StatusCode::OK)?;
        }
        let answer = read(response.into_body(), MAX_ANSWER).await?;
        if !known {
            return Ok(None);
        }
        let by = echo::listed_by(&answer, id);
        let by = by.with_context(|| format!("no list: {}", String::from_utf8_lossy(&answer)))?;
        Ok(Some(by))
    }

    /// Lists the tools, all pages of them; how many there are.
    pub(crate) async fn count_tools(
        &mut self,
        session: &Session,
        id: u64,
    ) -> anyhow::Result<usize> {
        let (mut count, mut params) = (0, String::from("{}"));
        loop {
            let body =
                format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/list","params":{params}}}"#);
            let request = request_of(Method::POST, session, session.headers.clone(), body);
            let response = self.send(request).await?;
            ensure_status(&response, StatusCode::OK)?;
            let answer = read(response.into_body(), MAX_ANSWER).await?;
            let listed = echo::listed(&answer, id);
            let (tools, next) =
                listed.with_context(|| format!("no list: {}", String::from_utf8_lossy(&answer)))?;
            count += tools;
            match next {
                Some(next) => params = serde_json::json!({"cursor": next}).to_string(),
                None => return Ok(count),
            }
        }
    }

    /// Opens the session's stream and waits for the first of it.
    pub(crate) async fn listen(&mut self, session: &Session) -> anyhow::Result<Incoming> {
        let mut headers = session.headers.clone();
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let request = request_of(Method::GET, session, headers, String::new());
        let response = self.send(request).await?;
        ensure_status(&response, StatusCode::OK)?;
        let mut body = response.into_body();
        body.frame().await.context("the stream ended at once")??;
        Ok(body)
    }

    /// Ends the session.
    pub(crate) async fn end_session(&mut self, session: &Session) -> anyhow::Result<()> {
        let headers = session.headers.clone();
        let request = request_of(Method::DELETE, session, headers, String::new());
        let response = self.send(request).await?;
        let status = response.status();
        ensure!(status.is_success(), "{status} to the end of a session");
        read(response.into_body(), MAX_ANSWER).await?;
        Ok(())
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Incoming>> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }
}

fn initialize() -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":0,"method":"initialize","params":{{"protocolVersion":"{VERSION}","capabilities":{{}},"clientInfo":{{"name":"bench","version":"1"}}}}}}"#
    )
}

fn request_of(
    method: Method,
    session: &Session,
    headers: HeaderMap,
    body: String,
) -> Request<Full<Bytes>> {
    request(method, &session.path, headers, body)
}

fn request(method: Method, path: &Uri, headers: HeaderMap, body: String) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.into()));
    *request.method_mut() = method;
    *request.uri_mut() = path.clone();
    *request.headers_mut() = headers;
    request
}

fn ensure_status(response: &Response<Incoming>, expected: StatusCode) -> anyhow::Result<()> {
    let status = response.status();
    ensure!(status == expected, "{status} instead of {expected}");
    Ok(())
}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(mut body: Incoming, limit: usize) -> anyhow::Result<Bytes> {
    let mut first = Bytes::new();
    let mut joined = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        ensure!(joined.len() + data.len() <= limit, "a body of over {limit}");
        if first.is_empty() {
            first = data;
        } else {
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&data);
        }
    }
    Ok(if joined.is_empty() {
        first
    } else {
        joined.freeze()
    })
}
