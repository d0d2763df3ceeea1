//! A client on a pair of byte streams, and the bridge that serves it.

use bowline::Bridge;
use bowline::config::Config;
use bowline_testbed::scripted::PATIENCE;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::gateway::config;
use super::heard::{Heard, answers, is_of};
use super::messages::{VERSION, ready};

/// How much fits into a pipe on its way.
const PIPE: usize = 64 * 1024;

/// A client, and the bridge that serves it.
pub(crate) struct Wired {
    input: Option<DuplexStream>,
    pub(crate) output: Lines<BufReader<DuplexStream>>,
    heard: Heard,
    stop: CancellationToken,
    serving: AbortOnDropHandle<()>,
}

impl Wired {
    /// A client of the server at this URL.
    pub(crate) async fn at(url: &str) -> Self {
        Self::with(config(&[("s", url)])).await
    }

    /// A client of the configuration's only server.
    pub(crate) async fn with(config: Config) -> Self {
        let (name, server) = config.servers.clone().pop_first().unwrap();
        Self::of(Bridge::start(config, name, server, None).await.unwrap())
    }

    /// A client of this bridge.
    pub(crate) fn of(bridge: Bridge) -> Self {
        let (input, its_input) = tokio::io::duplex(PIPE);
        let (its_output, output) = tokio::io::duplex(PIPE);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let serving = async move {
            let stop = stopped.cancelled_owned();
            bridge.serve(its_input, its_output, stop).await;
        };
        #[expect(clippy::disallowed_methods, reason = "the test waits for it")]
        let serving = tokio::spawn(serving);
        Self {
            input: Some(input),
            output: BufReader::new(output).lines(),
            heard: Heard::default(),
            stop,
            serving: AbortOnDropHandle::new(serving),
        }
    }

    /// Opens the session, and says that the client is ready.
    pub(crate) async fn begin(&mut self) -> Value {
        self.begin_with(VERSION, &json!({})).await
    }

    /// The same with this revision and these capabilities.
    pub(crate) async fn begin_with(&mut self, version: &str, capabilities: &Value) -> Value {
        let opened = self.ask(&initialize(version, capabilities)).await;
        self.say(&ready()).await;
        opened
    }

    /// Sends a message.
    pub(crate) async fn say(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().unwrap();
        let written = tokio::time::timeout(PATIENCE, input.write_all(bytes)).await;
        written.expect("the bridge reads").unwrap();
    }

    /// Sends a request, and waits for its answer. What comes before is heard later.
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

    /// The next line; `None` at the end.
    pub(crate) async fn read(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(3 * PATIENCE, self.output.next_line()).await;
        let line = line.expect("a line in time").unwrap()?;
        Some(serde_json::from_str(&line).expect("JSON on every line"))
    }

    /// Closes what the bridge reads.
    pub(crate) fn close(&mut self) {
        self.input = None;
    }

    /// Asks the bridge to stop, as a signal does.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }

    /// Closes what the bridge writes to.
    pub(crate) fn without_output(self) -> (Option<DuplexStream>, AbortOnDropHandle<()>) {
        (self.input, self.serving)
    }

    /// Waits until the bridge has ended; what it said last.
    pub(crate) async fn ended(mut self) -> Vec<Value> {
        let mut last = self.heard.take();
        while let Some(message) = self.read().await {
            last.push(message);
        }
        let serving = tokio::time::timeout(PATIENCE, self.serving).await;
        serving.expect("an end in time").unwrap();
        last
    }
}

/// An `initialize`.
pub(crate) fn initialize(version: &str, capabilities: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": "init", "method": "initialize", "params": {
        "protocolVersion": version, "capabilities": capabilities, "clientInfo": {"name": "test", "version": "1"},
    }})
}

/// A call of this tool with these arguments.
pub(crate) fn call_of(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
}
