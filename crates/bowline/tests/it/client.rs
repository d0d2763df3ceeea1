//! A client that says exactly what the test wants said, and the gateway under test.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Server};
use bowline_testbed::scripted::{Asked, PATIENCE, Scripted};
use bowline_wire::sse::{Decoder, Event};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

/// A configuration with these servers, on free ports.
pub(crate) fn config(servers: &[(&str, &str)]) -> Config {
    let servers = servers
        .iter()
        .map(|(name, url)| (name.parse().unwrap(), Server::from_url(url).unwrap()));
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin: None,
        servers: servers.collect(),
        ..Config::default()
    }
}

/// A gateway before one server, called `s`.
pub(crate) async fn gateway(url: &str) -> Gateway {
    Gateway::start(config(&[("s", url)])).await.unwrap()
}

/// A client of one server behind the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) session: Option<HeaderValue>,
    /// The bearer key that goes with every request.
    pub(crate) key: Option<&'static str>,
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {:?}", self.text))
    }

    /// The JSON-RPC error code.
    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap()
    }
}

impl Client {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        Self::at(format!("http://{}/mcp/s", gateway.listen()))
    }

    pub(crate) fn at(url: String) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(60))
            .build()
            .unwrap();
        Self {
            http,
            url,
            session: None,
            key: None,
        }
    }

    /// A session over a server that the test plays, which issues `upstream_id`.
    pub(crate) async fn open(gateway: &Gateway, server: &mut Scripted, upstream_id: &str) -> Self {
        Self::new(gateway).opened(server, upstream_id).await
    }

    /// This client with a session over a server that the test plays.
    pub(crate) async fn opened(mut self, server: &mut Scripted, upstream_id: &str) -> Self {
        let (opened, ()) = tokio::join!(self.initialize(), async {
            server.next().await.initialized(Some(upstream_id));
        });
        assert_eq!(opened.status, 200, "{}", opened.text);
        self
    }

    /// Sends `initialize` and keeps the session id.
    pub(crate) async fn initialize(&mut self) -> Answer {
        let answer = read(self.post(&initialize_message()).send().await.unwrap()).await;
        self.session = answer.headers.get("mcp-session-id").cloned();
        answer
    }

    /// A POST of this message, with everything that a good client sends.
    pub(crate) fn post(&self, message: &Value) -> RequestBuilder {
        self.post_text(message.to_string())
    }

    pub(crate) fn post_text(&self, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.with_session(self.http.post(&self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body)
    }

    pub(crate) fn get(&self) -> RequestBuilder {
        self.with_session(self.http.get(&self.url))
            .header("accept", "text/event-stream")
    }

    pub(crate) fn delete(&self) -> RequestBuilder {
        self.with_session(self.http.delete(&self.url))
    }

    pub(crate) fn request(&self, method: reqwest::Method) -> RequestBuilder {
        self.with_session(self.http.request(method, &self.url))
    }

    fn with_session(&self, mut request: RequestBuilder) -> RequestBuilder {
        if let Some(key) = self.key {
            request = request.bearer_auth(key);
        }
        match &self.session {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        }
    }

    /// Sends a message and reads the whole answer.
    pub(crate) async fn send(&self, message: &Value) -> Answer {
        read(self.post(message).send().await.unwrap()).await
    }

    /// Sends a message while the test answers it as the server.
    pub(crate) async fn send_to(
        &self,
        server: &mut Scripted,
        message: &Value,
        answer: impl FnOnce(Asked),
    ) -> Answer {
        let (sent, ()) = tokio::join!(self.send(message), async { answer(server.next().await) });
        sent
    }

    /// Sends a request whose answer is a stream that the test goes on writing.
    pub(crate) async fn open_stream(
        &self,
        server: &mut Scripted,
        request: RequestBuilder,
    ) -> (Events, bowline_testbed::scripted::Pen) {
        let (response, pen) = tokio::join!(request.send(), async { server.next().await.events() });
        (Events::new(response.unwrap()), pen)
    }
}

pub(crate) fn initialize_message() -> Value {
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
    }})
}

pub(crate) fn call(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": "t", "arguments": {}}})
}

pub(crate) async fn read(response: Response) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    Answer {
        status,
        headers,
        text: response.text().await.unwrap(),
    }
}

/// A stream of events, read one by one.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) response: Response,
    decoder: Decoder,
}

impl Events {
    pub(crate) fn new(response: Response) -> Self {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            decoder: Decoder::new(1 << 24),
        }
    }

    /// The next event; `None` at a clean end, an error at a cut.
    pub(crate) async fn try_next(&mut self) -> Result<Option<Event>, reqwest::Error> {
        loop {
            if let Some(event) = self.decoder.next_event().unwrap() {
                return Ok(Some(event));
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await;
            match chunk.expect("an event in time")? {
                Some(chunk) => self.decoder.push(chunk),
                None => return Ok(None),
            }
        }
    }

    /// The next event as text.
    pub(crate) async fn next(&mut self) -> String {
        let event = self.try_next().await.unwrap().expect("an event");
        String::from_utf8(event.raw().to_vec()).unwrap()
    }

    /// The id and the message of the next event.
    pub(crate) async fn next_message(&mut self) -> (Option<String>, Value) {
        let event = self.try_next().await.unwrap().expect("an event");
        let id = event.id().map(|id| String::from_utf8(id.to_vec()).unwrap());
        let data = event.data().unwrap_or_default().into_owned();
        (id, serde_json::from_slice(&data).unwrap_or_default())
    }

    pub(crate) async fn ends_cleanly(mut self) {
        assert_eq!(self.try_next().await.unwrap(), None);
    }
}
