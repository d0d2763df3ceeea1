//! A client of HTTP+SSE: one stream, and a URL for its messages.

use std::time::Duration;

use bowline::Gateway;
use bowline_testbed::scripted::PATIENCE;
use bowline_wire::sse::Event;
use reqwest::{RequestBuilder, Url};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::client::{Answer, sent};
use super::events::Events;
use super::heard::{Heard, answers, is_of};
use super::messages::ready;
use super::wired::initialize;

/// The revision of this transport.
pub(crate) const REVISION: &str = "2024-11-05";

/// A client whose stream is open.
pub(crate) struct Sse {
    http: reqwest::Client,
    key: Option<&'static str>,
    /// Where its messages go.
    pub(crate) endpoint: Url,
    heard: Heard,
    incoming: mpsc::UnboundedReceiver<Option<Value>>,
    /// Dropping it closes the stream.
    _reading: AbortOnDropHandle<()>,
}

impl Sse {
    /// Opens a stream of the server `s`.
    pub(crate) async fn open(gateway: &Gateway) -> Self {
        Self::open_as(gateway, "/sse/s", None).await
    }

    /// Opens a stream at this path, with this key.
    pub(crate) async fn open_as(gateway: &Gateway, path: &str, key: Option<&'static str>) -> Self {
        Self::open_at(&format!("http://{}{path}", gateway.listen()), key).await
    }

    /// Opens a stream at this URL, with this key.
    pub(crate) async fn open_at(url: &str, key: Option<&'static str>) -> Self {
        let (http, mut events, endpoint) = opened_at(url, key).await;
        let (hears, incoming) = mpsc::unbounded_channel();
        let reading = async move {
            while let Ok(Some(event)) = events.whenever().await {
                if let Some(message) = message_of(&event) {
                    drop(hears.send(Some(message)));
                }
            }
            drop(hears.send(None));
        };
        #[expect(clippy::disallowed_methods, reason = "it ends with the client")]
        let reading = AbortOnDropHandle::new(tokio::spawn(reading));
        Self {
            http,
            key,
            endpoint,
            heard: Heard::default(),
            incoming,
            _reading: reading,
        }
    }

    /// Opens the session, and says that the client is ready.
    pub(crate) async fn begin(&mut self) -> Value {
        self.begin_with(REVISION, &serde_json::json!({})).await
    }

    /// The same with this revision and these capabilities.
    pub(crate) async fn begin_with(&mut self, version: &str, capabilities: &Value) -> Value {
        let opened = self.ask(&initialize(version, capabilities)).await;
        self.say(&ready()).await;
        opened
    }

    /// A message as a request, which is not sent yet.
    pub(crate) fn post(&self, body: impl Into<reqwest::Body>) -> RequestBuilder {
        self.post_to(self.endpoint.clone(), body)
    }

    /// The same to another URL.
    pub(crate) fn post_to(&self, url: Url, body: impl Into<reqwest::Body>) -> RequestBuilder {
        let mut request = self
            .http
            .post(url)
            .header("content-type", "application/json");
        if let Some(key) = self.key {
            request = request.bearer_auth(key);
        }
        request.body(body)
    }

    /// Sends something, whatever becomes of it.
    pub(crate) async fn send(&self, message: &Value) -> Answer {
        sent(self.post(message.to_string())).await
    }

    /// Sends a message, which is accepted.
    pub(crate) async fn say(&self, message: &Value) {
        let answer = self.send(message).await;
        assert_eq!(
            (answer.status.as_u16(), &*answer.text),
            (202, ""),
            "{message}"
        );
    }

    /// Sends a request, and waits for its answer.
    pub(crate) async fn ask(&mut self, request: &Value) -> Value {
        self.say(request).await;
        self.answer_to(&request["id"]).await
    }

    /// Waits for the answer to this id.
    pub(crate) async fn answer_to(&mut self, id: &Value) -> Value {
        self.hear_where(answers(id)).await
    }

    /// Waits for a request or a notification of this method.
    pub(crate) async fn hear_of(&mut self, method: &str) -> Value {
        self.hear_where(is_of(method)).await
    }

    async fn hear_where(&mut self, is_meant: impl Fn(&Value) -> bool) -> Value {
        let mut heard = std::mem::take(&mut self.heard);
        let found = heard.find(is_meant, async || self.read().await).await;
        self.heard = heard;
        found
    }

    /// The next message, whatever it is.
    pub(crate) async fn next(&mut self) -> Value {
        self.hear_where(|_| true).await
    }

    async fn read(&mut self) -> Option<Value> {
        let heard = tokio::time::timeout(3 * PATIENCE, self.incoming.recv()).await;
        heard.expect("a message in time").unwrap()
    }

    /// Waits until the gateway ends the stream; what it said last.
    pub(crate) async fn ended(mut self) -> Vec<Value> {
        let mut last = self.heard.take();
        while let Some(message) = self.read().await {
            last.push(message);
        }
        last
    }
}

/// The message of an event, which has to be of that kind. Comments have none.
fn message_of(event: &Event) -> Option<Value> {
    let data = event.data()?;
    assert!(event.raw().starts_with(b"event: message\n"), "{event:?}");
    Some(serde_json::from_slice(&data).unwrap())
}

/// A stream that is open and not read on, and the URL that its first event has.
pub(crate) async fn opened(
    gateway: &Gateway,
    path: &str,
    key: Option<&'static str>,
) -> (reqwest::Client, Events, Url) {
    opened_at(&format!("http://{}{path}", gateway.listen()), key).await
}

async fn opened_at(url: &str, key: Option<&'static str>) -> (reqwest::Client, Events, Url) {
    let http = reqwest::Client::builder();
    let http = http.timeout(Duration::from_secs(120)).build().unwrap();
    let url = Url::parse(url).unwrap();
    let mut request = http.get(url.clone());
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let mut events = Events::new(request.send().await.unwrap());
    let first = events.next().await;
    let told = first.strip_prefix("event: endpoint\ndata: ").unwrap();
    let endpoint = url.join(told.trim_end()).unwrap();
    (http, events, endpoint)
}
