//! Servers that speak HTTP+SSE.

use bowline::Gateway;
use bowline::config::Config;
use bowline_testbed::stdio::over_sse::OverSse;
use serde_json::{Value, json};

use super::client::{Answer, Client};
use super::gateway::config;
use super::log::Log;
use super::messages::list;
use super::programs::Tally;
use super::wait::until;

/// A gateway before a server that speaks HTTP+SSE, and a client of it.
pub(crate) struct SsePlay {
    pub(crate) gateway: Gateway,
    pub(crate) client: Client,
    pub(crate) server: OverSse,
    pub(crate) tally: Tally,
}

impl SsePlay {
    /// A session that is open and ready, whose client knows the tools.
    pub(crate) async fn open() -> Self {
        Self::open_with(|_| {}).await
    }

    pub(crate) async fn open_with(change: impl FnOnce(&mut Config)) -> Self {
        let mut play = Self::start(change).await;
        let opened = play.client.begin().await;
        assert_eq!(opened.status, 200, "{opened:?}");
        play.learn_tools().await;
        play
    }

    /// Nothing is open yet.
    pub(crate) async fn start(change: impl FnOnce(&mut Config)) -> Self {
        let tally = Tally::default();
        let server = OverSse::start(tally.path()).await.unwrap();
        let mut config = config(&[("s", &server.url())]);
        change(&mut config);
        let gateway = Gateway::start(config).await.unwrap();
        let client = Client::new(&gateway);
        Self {
            gateway,
            client,
            server,
            tally,
        }
    }

    /// The client is shown the tools, which are forgotten whenever a session is lost.
    pub(crate) async fn learn_tools(&self) {
        let mut second = list("page 2");
        second["params"] = json!({"cursor": "second"});
        for page in [list("page 1"), second] {
            assert_eq!(self.client.send(&page).await.status, 200);
        }
    }

    /// Calls a tool.
    pub(crate) async fn call(&self, tool: &str, arguments: &Value) -> Answer {
        self.client.call(7, tool, arguments).await
    }

    /// The server saw nothing that a client must not do.
    pub(crate) fn assert_no_complaints(&self) {
        assert_eq!(self.server.complaints(), [] as [&str; 0]);
    }
}

/// Waits until the gateway has seen so many streams end. A call that it began before may have run.
pub(crate) async fn seen_ended(log: &Log, streams: usize) {
    let ended = "a session's stream has ended";
    until(ended, || log.lines_with(ended).len() >= streams).await;
}

/// The reason of an error, and its message.
pub(crate) fn reason(answer: &Answer) -> (String, String) {
    let error = answer.messages().pop().unwrap_or_default()["error"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&error["data"]["reason"]), text(&error["message"]))
}
