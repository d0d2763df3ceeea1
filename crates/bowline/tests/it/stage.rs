//! A gateway before a server that counts, with a proxy in between that breaks what the test wants
//! broken.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Recovery};
use bowline_testbed::client::{Answer, Client};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::Faulty;
use bowline_testbed::scripted::PATIENCE;
use serde_json::{Value, json};

use crate::client::config;

/// Everything from the client to the server.
pub(crate) struct Stage {
    pub(crate) tally: Tally,
    pub(crate) server: Counting,
    pub(crate) proxy: Faulty,
    pub(crate) gateway: Gateway,
    /// Its session is open, and it has listed the server's tools.
    pub(crate) client: Client,
}

impl Stage {
    /// With recovery as it is by default.
    pub(crate) async fn set() -> Self {
        Self::set_with(|_| {}).await
    }

    /// With recovery as the test wants it.
    pub(crate) async fn set_with(change: impl FnOnce(&mut Recovery)) -> Self {
        let tally = Tally::default();
        let server = Counting::start("r", &tally).await.unwrap();
        let proxy = Faulty::start(server.address()).await.unwrap();
        let mut config: Config = config(&[("s", &proxy.url())]);
        change(&mut config.servers.values_mut().next().unwrap().recovery);
        let gateway = Gateway::start(config).await.unwrap();
        let mut client = client_of(&gateway);
        assert_eq!(client.open().await.unwrap().status, 200);
        assert_eq!(client.send(&list("tools")).await.unwrap().status, 200);
        Self {
            tally,
            server,
            proxy,
            gateway,
            client,
        }
    }

    /// Calls a tool under a key; its answer.
    pub(crate) async fn call(&mut self, tool: &str, key: &str) -> Answer {
        let called = self.client.call(key, tool, &json!({"key": key})).await;
        called.unwrap()
    }

    /// Shows that the session works and how many were opened for it so far.
    pub(crate) async fn works_after(&mut self, initializes: u64) {
        let key = format!("works after {initializes}, {}", self.tally.all().len());
        let answer = self.call("bump", &key).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(self.tally.executions(&key), 1);
        assert_eq!(self.server.initializes(), initializes);
    }
}

/// A client of the gateway's server `s`.
pub(crate) fn client_of(gateway: &Gateway) -> Client {
    Client::new(&format!("http://{}/mcp/s", gateway.listen())).unwrap()
}

pub(crate) fn list(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "tools/list"})
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}: not in time");
}

/// The same where the question has to be asked.
pub(crate) async fn until_so(what: &str, is_so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(waited.is_ok(), "{what}: not in time");
}
