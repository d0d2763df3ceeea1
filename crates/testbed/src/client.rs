//! A client of one MCP session that sends exactly what the test says and reads everything.
//!
//! It uses none of the gateway's code, so that it can judge the gateway.

mod answer;

use std::net::SocketAddr;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

pub use self::answer::{Answer, Event, Events};

const SESSION_ID: &str = "mcp-session-id";
/// The revision that it asks for.
pub const VERSION: &str = "2025-11-25";

/// A client with one connection, kept while it lasts.
#[derive(Debug)]
pub struct Client {
    /// What it calls itself in `clientInfo`.
    name: String,
    /// The revision that it speaks.
    version: &'static str,
    /// The approximate size of its `initialize`.
    weight: usize,
    address: SocketAddr,
    url: Uri,
    session: Option<HeaderValue>,
    connection: Option<SendRequest<Full<Bytes>>>,
    tasks: TaskTracker,
}

// === impl Client ===

impl Client {
    /// A client of this URL, whose host must be an address.
    ///
    /// # Errors
    ///
    /// When it is not.
    pub fn new(url: &str) -> anyhow::Result<Self> {
        let url: Uri = url.parse()?;
        let host = url.authority().context("no host")?.as_str();
        Ok(Self {
            name: "testbed".to_owned(),
            version: VERSION,
            weight: 1,
            address: host.parse()?,
            url,
            session: None,
            connection: None,
            tasks: TaskTracker::new(),
        })
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The same in another revision of the protocol.
    #[must_use]
    pub fn speaking(mut self, version: &'static str) -> Self {
        self.version = version;
        self
    }

    /// The same with an `initialize` of about this many bytes, which the gateway has to keep.
    #[must_use]
    pub fn weighing(mut self, bytes: usize) -> Self {
        self.weight = bytes;
        self
    }

    /// A second client in the same session, with its own connection.
    #[must_use]
    pub fn twin(&self) -> Self {
        Self {
            name: self.name.clone(),
            version: self.version,
            weight: self.weight,
            address: self.address,
            url: self.url.clone(),
            session: self.session.clone(),
            connection: None,
            tasks: self.tasks.clone(),
        }
    }

    /// A client in the same session at another gateway.
    ///
    /// # Errors
    ///
    /// As [`Client::new`].
    pub fn moved_to(&self, url: &str) -> anyhow::Result<Self> {
        let mut moved = Self::new(url)?.named(self.name.clone());
        (moved.version, moved.weight) = (self.version, self.weight);
        moved.session = self.session.clone();
        Ok(moved)
    }

    /// The session's id.
    #[must_use]
    pub fn session(&self) -> Option<&str> {
        self.session.as_ref().and_then(|id| id.to_str().ok())
    }

    /// Opens a session: `initialize` and, if that succeeds, `notifications/initialized`.
    ///
    /// # Errors
    ///
    /// When the connection breaks.
    pub async fn open(&mut self) -> anyhow::Result<Answer> {
        self.session = None;
        let initialize = json!({"jsonrpc": "2.0", "id": "open", "method": "initialize", "params": {
            "protocolVersion": self.version, "capabilities": {}, "clientInfo": {"name": self.name, "version": "1".repeat(self.weight)},
        }});
        let answer = self.send(&initialize).await?;
        self.session = answer.headers.get(SESSION_ID).cloned();
        if answer.status == 200 {
            let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
            self.send(&initialized).await?;
        }
        Ok(answer)
    }

    /// Sends a message and reads the whole response.
    ///
    /// # Errors
    ///
    /// When the connection breaks before the answer's head has come.
    pub async fn send(&mut self, message: &Value) -> anyhow::Result<Answer> {
        let request = self.request(Method::POST, &[], message.to_string())?;
        let mut events = Events::new(self.exchange(request).await?);
        Ok(events.read().await)
    }

    /// Calls a tool with these arguments.
    ///
    /// # Errors
    ///
    /// As [`Client::send`].
    pub async fn call(
        &mut self,
        id: impl Into<Value>,
        tool: &str,
        arguments: &Value,
    ) -> anyhow::Result<Answer> {
        let parameters = json!({"name": tool, "arguments": arguments});
        self.send(
            &json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": parameters}),
        )
        .await
    }

    /// Opens the GET stream, or resumes a stream after this event. The connection cannot be used again.
    ///
    /// # Errors
    ///
    /// When the connection breaks.
    pub async fn listen(&mut self, after: Option<&str>) -> anyhow::Result<Events> {
        let after: Vec<_> = after
            .iter()
            .map(|after| ("last-event-id", *after))
            .collect();
        let request = self.request(Method::GET, &after, String::new())?;
        let response = self.exchange(request).await?;
        self.connection = None;
        Ok(Events::new(response))
    }

    /// Ends the session.
    ///
    /// # Errors
    ///
    /// When the connection breaks.
    pub async fn delete(&mut self) -> anyhow::Result<Answer> {
        let request = self.request(Method::DELETE, &[], String::new())?;
        let mut events = Events::new(self.exchange(request).await?);
        Ok(events.read().await)
    }

    fn request(
        &self,
        method: Method,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::new(Full::new(body.into()));
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse()?;
        let host = self.url.authority().map_or("", |host| host.as_str());
        let all = request.headers_mut();
        all.insert(HOST, HeaderValue::from_str(host)?);
        let both = "application/json, text/event-stream";
        all.insert(ACCEPT, HeaderValue::from_static(both));
        if method == Method::POST {
            all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(session) = &self.session {
            all.insert(SESSION_ID, session.clone());
            all.insert(
                "mcp-protocol-version",
                HeaderValue::from_static(self.version),
            );
        }
        for (name, value) in headers {
            all.insert(*name, HeaderValue::from_str(value)?);
        }
        *request.method_mut() = method;
        Ok(request)
    }

    /// Sends a request, on a new connection if the old one ended before it was sent.
    async fn exchange(
        &mut self,
        mut request: Request<Full<Bytes>>,
    ) -> anyhow::Result<Response<Incoming>> {
        if let Some(mut connection) = self.connection.take()
            && connection.ready().await.is_ok()
        {
            match connection.try_send_request(request).await {
                Ok(response) => {
                    self.connection = Some(connection);
                    return Ok(response);
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().into()),
                },
            }
        }
        #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (mut connection, driver) = http1::handshake(TokioIo::new(stream)).await?;
        self.tasks.spawn(async move {
            // The request that waits for a response gets this error.
            _ = driver.await;
        });
        let response = connection.send_request(request).await?;
        self.connection = Some(connection);
        Ok(response)
    }
}
