//! A client of one transport, a server of another, and a gateway between them.

use bowline::config::{Config, Password, Peers, Server};
use bowline_testbed::redis::Redis;
use bowline_testbed::stdio::over_http::OverHttp;
use bowline_testbed::stdio::over_sse::OverSse;
use serde_json::{Value, json};
use tempfile::TempDir;
use tracing::subscriber::DefaultGuard;

use crate::kit::front::{Front, Site};
use crate::kit::gateway::config;
use crate::kit::log::Log;
use crate::kit::programs::{Tally, command, config_of, kill, until_gone};
use crate::kit::sse_server::seen_ended;
use crate::kit::stores::{in_file, in_redis};
use crate::kit::wait::until;

/// The transports, and where sessions are kept.
pub(super) struct Pair {
    front: Transport,
    upstream: Transport,
    kept: Kept,
}

enum Transport {
    Http,
    /// HTTP+SSE.
    Sse,
    Stdio,
}

enum Kept {
    InMemory,
    InFile,
    InRedis,
    /// In a Redis, by three gateways with peers, behind a load balancer that knows nothing of sessions.
    Spread,
}

/// Everything from the client to the server.
pub(super) struct Stage {
    pub(super) front: Front,
    pub(super) tally: Tally,
    upstream: Upstream,
    /// The server's session is lost in the middle.
    pub(super) is_killed: bool,
    log: Log,
    _kept: DefaultGuard,
    _store: (TempDir, Option<Redis>),
}

/// The server, which is the same over every transport.
enum Upstream {
    Http(OverHttp),
    Sse(OverSse),
    Stdio,
}

// === impl Pair ===

impl Pair {
    pub(super) fn http_to_http_in_memory() -> Self {
        Self::of(Transport::Http, Transport::Http, Kept::InMemory)
    }

    pub(super) fn http_to_sse_in_memory() -> Self {
        Self::of(Transport::Http, Transport::Sse, Kept::InMemory)
    }

    pub(super) fn http_to_stdio_in_memory() -> Self {
        Self::of(Transport::Http, Transport::Stdio, Kept::InMemory)
    }

    pub(super) fn sse_to_http_in_memory() -> Self {
        Self::of(Transport::Sse, Transport::Http, Kept::InMemory)
    }

    pub(super) fn sse_to_sse_in_memory() -> Self {
        Self::of(Transport::Sse, Transport::Sse, Kept::InMemory)
    }

    pub(super) fn sse_to_stdio_in_memory() -> Self {
        Self::of(Transport::Sse, Transport::Stdio, Kept::InMemory)
    }

    pub(super) fn stdio_to_http_in_memory() -> Self {
        Self::of(Transport::Stdio, Transport::Http, Kept::InMemory)
    }

    pub(super) fn stdio_to_sse_in_memory() -> Self {
        Self::of(Transport::Stdio, Transport::Sse, Kept::InMemory)
    }

    pub(super) fn stdio_to_stdio_in_memory() -> Self {
        Self::of(Transport::Stdio, Transport::Stdio, Kept::InMemory)
    }

    pub(super) fn http_to_http_in_file() -> Self {
        Self::of(Transport::Http, Transport::Http, Kept::InFile)
    }

    pub(super) fn http_to_stdio_in_file() -> Self {
        Self::of(Transport::Http, Transport::Stdio, Kept::InFile)
    }

    pub(super) fn http_to_sse_in_file() -> Self {
        Self::of(Transport::Http, Transport::Sse, Kept::InFile)
    }

    pub(super) fn sse_to_http_in_file() -> Self {
        Self::of(Transport::Sse, Transport::Http, Kept::InFile)
    }

    pub(super) fn sse_to_sse_in_file() -> Self {
        Self::of(Transport::Sse, Transport::Sse, Kept::InFile)
    }

    pub(super) fn http_to_http_in_redis() -> Self {
        Self::of(Transport::Http, Transport::Http, Kept::InRedis)
    }

    pub(super) fn http_to_stdio_in_redis() -> Self {
        Self::of(Transport::Http, Transport::Stdio, Kept::InRedis)
    }

    pub(super) fn sse_to_sse_in_redis() -> Self {
        Self::of(Transport::Sse, Transport::Sse, Kept::InRedis)
    }

    pub(super) fn stdio_to_stdio_in_file() -> Self {
        Self::of(Transport::Stdio, Transport::Stdio, Kept::InFile)
    }

    pub(super) fn stdio_to_stdio_in_redis() -> Self {
        Self::of(Transport::Stdio, Transport::Stdio, Kept::InRedis)
    }

    pub(super) fn stdio_to_stdio_spread() -> Self {
        Self::of(Transport::Stdio, Transport::Stdio, Kept::Spread)
    }

    pub(super) fn http_to_http_spread() -> Self {
        Self::of(Transport::Http, Transport::Http, Kept::Spread)
    }

    pub(super) fn http_to_stdio_spread() -> Self {
        Self::of(Transport::Http, Transport::Stdio, Kept::Spread)
    }

    pub(super) fn http_to_sse_spread() -> Self {
        Self::of(Transport::Http, Transport::Sse, Kept::Spread)
    }

    pub(super) fn sse_to_sse_spread() -> Self {
        Self::of(Transport::Sse, Transport::Sse, Kept::Spread)
    }

    pub(super) fn sse_to_stdio_spread() -> Self {
        Self::of(Transport::Sse, Transport::Stdio, Kept::Spread)
    }

    fn of(front: Transport, upstream: Transport, kept: Kept) -> Self {
        Self {
            front,
            upstream,
            kept,
        }
    }
}

// === impl Stage ===

impl Stage {
    /// A session that is open, whose client knows the tools.
    pub(super) async fn set(pair: Pair, is_killed: bool) -> Self {
        let log = Log::default();
        let kept = log.keep();
        let (tally, store) = (Tally::default(), tempfile::tempdir().unwrap());
        let (upstream, mut config) = upstream(&pair.upstream, &tally).await;
        let redis = match pair.kept {
            Kept::InMemory | Kept::InFile => None,
            Kept::InRedis | Kept::Spread => Some(Redis::start().await.unwrap()),
        };
        match (&pair.kept, &redis) {
            (Kept::InFile, _) => config.store = in_file(store.path()),
            (_, Some(redis)) => config.store = in_redis(redis),
            _ => {}
        }
        let mut front = match pair.front {
            Transport::Http => Front::http(site(&pair.kept, config).await),
            Transport::Stdio if matches!(pair.kept, Kept::InMemory) => Front::stdio(config).await,
            Transport::Stdio => Front::connected(site(&pair.kept, config).await).await,
            Transport::Sse => Front::sse(site(&pair.kept, config).await).await,
        };
        let opened = front
            .begin(&json!({"sampling": {}, "elicitation": {}}))
            .await;
        let name = &opened["result"]["serverInfo"]["name"];
        assert_eq!(name, "stdio fixture", "{opened}");
        let mut stage = Self {
            front,
            tally,
            upstream,
            is_killed,
            log,
            _kept: kept,
            _store: (store, redis),
        };
        for page in [json!({}), json!({"cursor": "second"})] {
            stage.ask("tools/list", page).await;
        }
        stage
    }

    /// Kills the server's process, or has it forget the session; unless nothing disturbs this test.
    pub(super) async fn disturb(&self) {
        if !self.is_killed {
            return;
        }
        match &self.upstream {
            Upstream::Http(server) => server.forget(),
            Upstream::Sse(server) => {
                server.forget();
                seen_ended(&self.log, 1).await;
            }
            Upstream::Stdio => kill(*self.tally.pids().last().unwrap()).await,
        }
    }

    /// The server's sessions so far: one more if the first was lost.
    pub(super) fn assert_sessions(&self) {
        assert_eq!(self.tally.starts(), 1 + usize::from(self.is_killed));
        if let Upstream::Sse(server) = &self.upstream {
            assert_eq!(server.complaints(), [] as [&str; 0]);
        }
    }

    /// Lets tools go on that wait.
    pub(super) fn go_on(&self) {
        self.tally.go_on();
    }

    /// Ends the session at the client's side; then the server has none.
    pub(super) async fn end(self) {
        let Self {
            front,
            tally,
            upstream,
            ..
        } = self;
        front.end().await;
        match upstream {
            Upstream::Http(server) => until("no session", || server.sessions() == 0).await,
            Upstream::Sse(server) => until("no session", || server.sessions() == 0).await,
            Upstream::Stdio => {
                for pid in tally.pids() {
                    until_gone(pid).await;
                }
            }
        }
    }

    /// Asks, and the answer is a result.
    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": method, "method": method, "params": params});
        let answer = self.front.ask(&request).await;
        assert!(answer.get("result").is_some(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Begins to call a tool, with a token for its progress.
    pub(super) async fn begin(&mut self, id: &str, tool: &str, arguments: Value) {
        let params = json!({"name": tool, "arguments": arguments, "_meta": {"progressToken": id}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        self.front.say(&call).await;
    }

    /// Calls a tool; its text.
    pub(super) async fn call(&mut self, id: &str, tool: &str, arguments: Value) -> String {
        self.begin(id, tool, arguments).await;
        self.text(id).await
    }

    /// The text that answers a call.
    pub(super) async fn text(&mut self, id: &str) -> String {
        let answer = self.front.answer_to(&json!(id)).await;
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.map(str::to_owned);
        text.unwrap_or_else(|| panic!("{id}: {answer}"))
    }

    /// The code of the error that answers a call.
    pub(super) async fn code(&mut self, id: &str) -> Value {
        let answer = self.front.answer_to(&json!(id)).await;
        answer["error"]["code"].clone()
    }
}

async fn site(kept: &Kept, mut config: Config) -> Site {
    if !matches!(kept, Kept::Spread) {
        return Site::alone(config).await;
    }
    config.peers = Some(Peers {
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        secret: Password::Written("a secret of these three gateways".to_owned()),
    });
    Site::spread(&config).await
}

async fn upstream(transport: &Transport, tally: &Tally) -> (Upstream, Config) {
    match transport {
        Transport::Http => {
            let server = OverHttp::start(tally.path()).await.unwrap();
            let mut config = config(&[]);
            let configured = Server::from_url(&server.url()).unwrap();
            config.servers.insert("s".parse().unwrap(), configured);
            (Upstream::Http(server), config)
        }
        Transport::Sse => {
            let server = OverSse::start(tally.path()).await.unwrap();
            let config = config(&[("s", &server.url())]);
            (Upstream::Sse(server), config)
        }
        Transport::Stdio => (Upstream::Stdio, config_of(command(&tally.path()))),
    }
}
