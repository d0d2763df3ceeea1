//! A server of a union: it answers by rules of the test, knows its own sessions, and fails the test that sends it the
//! id of another's.

use std::collections::HashMap;
use std::sync::Arc;

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::answering::{Answering, Said, Seen};
use bowline_testbed::scripted::Pen;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::events::Events;
use super::gateway::config;
use super::wait::until;

/// A server that answers by rules.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    server: Answering,
    inner: Arc<Mutex<Inner>>,
}

type Rule = dyn Fn(&Seen) -> Said + Send + Sync;

struct Inner {
    name: &'static str,
    capabilities: Value,
    born: usize,
    /// The sessions that it knows, and those that it knew.
    live: Vec<String>,
    gone: Vec<String>,
    /// By method of JSON-RPC, or of HTTP where there is no message.
    rules: HashMap<String, Arc<Rule>>,
    /// The GET streams with their sessions.
    pens: Vec<(String, Pen)>,
    complaints: Vec<String>,
}

impl Fake {
    /// A server with one tool, `t`.
    pub(crate) async fn start(name: &'static str) -> Self {
        let inner = Arc::new(Mutex::new(Inner {
            name,
            capabilities: json!({"tools": {"listChanged": true}, "prompts": {}, "logging": {}, "completions": {},
                "resources": {"subscribe": true}}),
            born: 0,
            live: Vec::new(),
            gone: Vec::new(),
            rules: HashMap::new(),
            pens: Vec::new(),
            complaints: Vec::new(),
        }));
        let own = Arc::clone(&inner);
        let server = Answering::start(move |seen| says(&own, seen)).await;
        Self {
            name,
            server,
            inner,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/mcp", self.server.address())
    }

    /// Answers this method by this rule from now on.
    pub(crate) fn on(&self, method: &str, rule: impl Fn(&Seen) -> Said + Send + Sync + 'static) {
        let rules = &mut self.inner.lock().rules;
        rules.insert(method.to_owned(), Arc::new(rule));
    }

    /// Answers this method with this result from now on.
    pub(crate) fn result(&self, method: &str, result: Value) {
        self.on(method, move |seen| seen.result(&result));
    }

    /// Declares these capabilities from now on.
    pub(crate) fn declare(&self, capabilities: Value) {
        self.inner.lock().capabilities = capabilities;
    }

    /// Loses all sessions, as by a restart.
    pub(crate) fn forget(&self) {
        let mut inner = self.inner.lock();
        let live = std::mem::take(&mut inner.live);
        inner.gone.extend(live);
        inner.pens.clear();
    }

    /// The sessions that are open.
    pub(crate) fn live(&self) -> Vec<String> {
        self.inner.lock().live.clone()
    }

    /// The requests of this method, of JSON-RPC or HTTP.
    pub(crate) fn asked(&self, method: &str) -> Vec<Seen> {
        let mut seen = self.server.seen();
        seen.retain(|seen| method_of(seen) == method);
        seen
    }

    /// The methods of all requests so far.
    pub(crate) fn methods(&self) -> Vec<String> {
        self.server.seen().iter().map(method_of).collect()
    }

    /// The params of the messages of this method.
    pub(crate) fn params(&self, method: &str) -> Vec<Value> {
        let asked = self.asked(method);
        asked
            .iter()
            .map(|seen| seen.json()["params"].clone())
            .collect()
    }

    pub(crate) fn count(&self, method: &str) -> usize {
        self.asked(method).len()
    }

    /// Waits until it was asked so often.
    pub(crate) async fn until(&self, method: &str, times: usize) {
        let what = format!("{}: {times} {method}", self.name);
        until(&what, || self.count(method) >= times).await;
    }

    /// Waits until this many streams are open, of those that are read.
    pub(crate) async fn until_listened(&self, streams: usize) {
        let open = || {
            let inner = self.inner.lock();
            inner.pens.iter().filter(|(_, pen)| pen.is_open()).count()
        };
        until(self.name, || open() == streams).await;
    }

    /// Writes this text on every GET stream.
    pub(crate) fn write(&self, text: &str) {
        let mut inner = self.inner.lock();
        for (_, pen) in &mut inner.pens {
            pen.write(text.to_owned());
        }
    }

    /// Sends a message on every GET stream, under an event id if there is one.
    pub(crate) fn emit(&self, id: Option<&str>, message: &Value) {
        let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
        self.write(&format!("{id}data: {message}\n\n"));
    }

    /// Ends every GET stream.
    pub(crate) fn end_streams(&self) {
        self.inner.lock().pens.clear();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let complaints = &self.inner.lock().complaints;
        if !std::thread::panicking() {
            assert!(complaints.is_empty(), "{}: {complaints:?}", self.name);
        }
    }
}

fn method_of(seen: &Seen) -> String {
    match seen.method.as_str() {
        "POST" => seen.json()["method"]
            .as_str()
            .unwrap_or("a response")
            .to_owned(),
        other => other.to_owned(),
    }
}

fn says(inner: &Mutex<Inner>, seen: &Seen) -> Said {
    let method = method_of(seen);
    let session = seen.header("mcp-session-id").to_owned();
    let mut own = inner.lock();
    if method == "initialize" {
        own.born += 1;
        let id = format!("{}-{}", own.name, own.born);
        if !session.is_empty() {
            own.complaints.push(format!("initialize with {session}"));
        }
        own.live.push(id.clone());
        let rule = own.rules.get(&method).cloned();
        let result = json!({
            "protocolVersion": seen.json()["params"]["protocolVersion"],
            "capabilities": own.capabilities, "serverInfo": {"name": own.name, "version": "1"},
        });
        drop(own);
        let said = match rule {
            Some(rule) => rule(seen),
            None => seen.result(&result),
        };
        return said.with("mcp-session-id", &id);
    }
    if own.gone.contains(&session) {
        return Said::status(404);
    }
    if !own.live.contains(&session) {
        own.complaints.push(format!("{method} with {session:?}"));
        return Said::status(400);
    }
    if let Some(rule) = own.rules.get(&method).cloned() {
        drop(own);
        return rule(seen);
    }
    match method.as_str() {
        "tools/list" => {
            seen.result(&json!({"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}))
        }
        "tools/call" => seen.result(&text(own.name)),
        "prompts/list" => seen.result(&json!({"prompts": []})),
        "resources/list" => seen.result(&json!({"resources": []})),
        "resources/templates/list" => seen.result(&json!({"resourceTemplates": []})),
        "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => {
            seen.result(&json!({}))
        }
        "GET" => {
            let (said, mut pen) = Said::events();
            pen.write(": here\n\n");
            own.pens.push((session, pen));
            said
        }
        "DELETE" => {
            own.live.retain(|live| *live != session);
            own.gone.push(session);
            Said::status(204)
        }
        other if other.starts_with("notifications/") || other == "a response" => Said::status(202),
        _ => refusal(seen, -32601, "no such method"),
    }
}

/// A tool's result with this text.
pub(crate) fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// A message of a member without the word on whose it is.
pub(crate) fn unmarked(mut message: Value) -> Value {
    if let Some(result) = message["result"].as_object_mut() {
        let meta = result["_meta"].as_object_mut().expect("whose it is");
        assert!(
            meta.remove("bowline/server").is_some(),
            "whose is {meta:?}?"
        );
        if meta.is_empty() {
            result.remove("_meta");
        }
    }
    message
}

/// A JSON-RPC error for this request.
pub(crate) fn refusal(seen: &Seen, code: i64, message: &str) -> Said {
    let error = json!({"code": code, "message": message});
    Said::json(&json!({"jsonrpc": "2.0", "id": seen.json()["id"], "error": error}))
}

/// A configuration with these servers.
pub(crate) fn config_of(fakes: &[&Fake]) -> Config {
    let urls: Vec<String> = fakes.iter().map(|fake| fake.url()).collect();
    let servers: Vec<(&str, &str)> = fakes
        .iter()
        .zip(&urls)
        .map(|(fake, url)| (fake.name, url.as_str()))
        .collect();
    config(&servers)
}

/// A client of the union at `/mcp`.
pub(crate) fn client_of(gateway: &Gateway) -> Client {
    Client::at(format!("http://{}/mcp", gateway.listen()))
}

/// A gateway before these servers, and a client of all of them.
pub(crate) async fn united(fakes: &[&Fake]) -> (Gateway, Client) {
    united_with(config_of(fakes)).await
}

/// The same with this configuration.
pub(crate) async fn united_with(config: Config) -> (Gateway, Client) {
    let gateway = Gateway::start(config).await.unwrap();
    let client = begun(&gateway).await;
    (gateway, client)
}

/// A client of the union whose attachment is open.
pub(crate) async fn begun(gateway: &Gateway) -> Client {
    let mut client = client_of(gateway);
    let answer = client.begin().await;
    assert_eq!(answer.status, 200, "{answer:?}");
    client
}

/// The names of the tools in an answer.
pub(crate) fn names(answer: &Answer) -> Vec<String> {
    let message = answer.messages().pop().unwrap_or_default();
    let tools = message["result"]["tools"].as_array();
    let tools = tools.unwrap_or_else(|| panic!("no tools: {answer:?}"));
    let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
    tools.iter().map(name).collect()
}

/// What a list says of servers that are missing from it.
pub(crate) fn missing(answer: &Answer) -> Value {
    answer.json()["result"]["_meta"]["bowline/servers"].clone()
}

/// What tells a client that tools have changed.
pub(crate) const TOOLS_CHANGED: &str = "notifications/tools/list_changed";

/// Waits for a message of this method; it, and its event's id.
pub(crate) async fn hear_of(events: &mut Events, method: &str) -> (Option<String>, Value) {
    loop {
        let (id, message) = events.next_message().await;
        if message["method"] == method {
            return (id, message);
        }
    }
}
