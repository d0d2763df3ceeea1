//! A gateway before a server that counts, with a proxy in between that breaks what the test wants
//! broken.

use bowline::Gateway;
use bowline::config::{Config, Recovery};
use bowline_testbed::counting::{Counting, Tally};
use bowline_testbed::faulty::Faulty;
use serde_json::json;

use super::client::{Answer, Client};
use super::gateway::config;
use super::messages::list;

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
        let mut client = Client::new(&gateway);
        assert_eq!(client.begin().await.status, 200);
        assert_eq!(client.send(&list("tools")).await.status, 200);
        Self {
            tally,
            server,
            proxy,
            gateway,
            client,
        }
    }

    /// Calls a tool under a key; its answer.
    pub(crate) async fn call(&self, tool: &str, key: &str) -> Answer {
        self.client.call(key, tool, &json!({"key": key})).await
    }

    /// Shows that the session works and how many were opened for it so far.
    pub(crate) async fn works_after(&self, initializes: u64) {
        let key = format!("works after {initializes}, {}", self.tally.all().len());
        let answer = self.call("bump", &key).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(self.tally.executions(&key), 1);
        assert_eq!(self.server.initializes(), initializes);
    }
}
