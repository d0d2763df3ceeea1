//! The one client of these tests: it says exactly what the test wants said.

use std::path::Path;
use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::{Asked, Pen, Scripted};
use bowline_wire::sse::{Decoder, Event};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::events::Events;
use super::messages::{VERSION, call, initialize_message, ready};

/// A client of one server behind the gateway.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    pub(crate) url: String,
    pub(crate) session: Option<HeaderValue>,
    /// The bearer key that goes with every request.
    pub(crate) key: Option<&'static str>,
    /// The revision that requests name, if they name one.
    version: Option<&'static str>,
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

    /// The JSON-RPC error code, which has to be there.
    pub(crate) fn code(&self) -> i64 {
        self.json()["error"]["code"].as_i64().unwrap()
    }

    /// The messages in it: one, or one for every event that has one.
    pub(crate) fn messages(&self) -> Vec<Value> {
        if !self.is_stream() {
            return serde_json::from_str(&self.text).into_iter().collect();
        }
        let data = self.events().into_iter().filter_map(|event| {
            let data = event.data()?;
            serde_json::from_slice(&data).ok()
        });
        data.filter(|message: &Value| !message.is_null()).collect()
    }

    /// The ids of its events.
    pub(crate) fn event_ids(&self) -> Vec<String> {
        let events = self.events();
        let ids = events.iter().filter_map(Event::id);
        ids.map(|id| String::from_utf8(id.to_vec()).unwrap())
            .collect()
    }

    /// The message that answers the request of this id, if there is exactly one.
    pub(crate) fn to(&self, id: &Value) -> Option<Value> {
        let answers = |message: &Value| message.get("method").is_none() && message["id"] == *id;
        let mut found = self.messages().into_iter().filter(answers);
        let first = found.next();
        if found.next().is_some() { None } else { first }
    }

    /// The error code of the first message, if that is an error.
    pub(crate) fn failure(&self) -> Option<i64> {
        self.messages().first()?["error"]["code"].as_i64()
    }

    fn is_stream(&self) -> bool {
        let content_type = self.headers.get("content-type");
        content_type.is_some_and(|content_type| content_type == "text/event-stream")
    }

    fn events(&self) -> Vec<Event> {
        let mut decoder = Decoder::new(usize::MAX);
        if self.is_stream() {
            decoder.push(self.text.clone().into());
        }
        std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
    }
}

impl Client {
    pub(crate) fn new(gateway: &Gateway) -> Self {
        Self::at(format!("http://{}/mcp/s", gateway.listen()))
    }

    pub(crate) fn at(url: String) -> Self {
        Self::made_by(reqwest::Client::builder(), url)
    }

    /// One that connects to this Unix socket, whatever the URL says.
    pub(crate) fn by_socket(path: &Path, url: &str) -> Self {
        Self::made_by(reqwest::Client::builder().unix_socket(path), url.to_owned())
    }

    fn made_by(http: reqwest::ClientBuilder, url: String) -> Self {
        let http = http.timeout(Duration::from_secs(60)).build().unwrap();
        Self {
            http,
            url,
            session: None,
            key: None,
            version: None,
        }
    }

    /// The same as a caller with this key.
    pub(crate) fn with_key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
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
        self.initialize_as(&initialize_message()).await
    }

    /// The same with an `initialize` of the test's own.
    pub(crate) async fn initialize_as(&mut self, message: &Value) -> Answer {
        let answer = sent(self.post(message)).await;
        self.session = answer.headers.get("mcp-session-id").cloned();
        answer
    }

    /// Opens a session: `initialize` and, if that is answered well, `notifications/initialized`. Requests
    /// name the revision from then on.
    pub(crate) async fn begin(&mut self) -> Answer {
        (self.session, self.version) = (None, None);
        let answer = self.initialize().await;
        self.version = self.session.as_ref().map(|_| VERSION);
        if answer.status == 200 {
            self.send(&ready()).await;
        }
        answer
    }

    /// Says to a server that the test plays that this client is ready.
    pub(crate) async fn is_ready(&self, server: &mut Scripted) {
        let ready = ready();
        let told = self.send_to(server, &ready, |asked| asked.reply(202, &[], ""));
        assert_eq!(told.await.status, 202);
    }

    /// The same client, in the same session, at another gateway.
    pub(crate) fn moved_to(&self, gateway: &Gateway) -> Self {
        let url = format!("http://{}/mcp/s", gateway.listen());
        Self {
            url,
            ..self.clone()
        }
    }

    /// The same client, in the same session, at another URL.
    pub(crate) fn moved_to_url(&self, url: &str) -> Self {
        Self {
            url: url.to_owned(),
            ..self.clone()
        }
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
        if let Some(version) = self.version {
            request = request.header("mcp-protocol-version", version);
        }
        match &self.session {
            Some(id) => request.header("mcp-session-id", id),
            None => request,
        }
    }

    /// Sends a message and reads the whole answer.
    pub(crate) async fn send(&self, message: &Value) -> Answer {
        sent(self.post(message)).await
    }

    /// Calls a tool with these arguments.
    pub(crate) async fn call(&self, id: impl Into<Value>, tool: &str, arguments: &Value) -> Answer {
        let mut message = call(id);
        message["params"] = json!({"name": tool, "arguments": arguments});
        self.send(&message).await
    }

    /// Ends the session.
    pub(crate) async fn end(&self) -> Answer {
        sent(self.delete()).await
    }

    /// Opens the stream that a GET gets.
    pub(crate) async fn listen(&self) -> Events {
        Events::new(self.get().send().await.unwrap())
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
    ) -> (Events, Pen) {
        let (response, pen) = tokio::join!(request.send(), async { server.next().await.events() });
        (Events::new(response.unwrap()), pen)
    }
}

/// Sends a request and reads the whole answer.
pub(crate) async fn sent(request: RequestBuilder) -> Answer {
    read(request.send().await.unwrap()).await
}

/// Reads the whole answer; one that is cut is none.
pub(crate) async fn read(response: Response) -> Answer {
    let (status, headers) = (response.status(), response.headers().clone());
    Answer {
        status,
        headers,
        text: response.text().await.expect("a whole answer"),
    }
}
