//! Several gateways on one Redis, before a server that the test plays.

use std::time::Duration;

use bowline::Gateway;
use bowline::config::{Config, Store};
use bowline_testbed::redis::Redis;
use bowline_testbed::scripted::{PATIENCE, Scripted};
use serde_json::json;
use tokio::time::Instant;

use super::client::{Answer, Client};
use super::gateway::{config, with_admin};
use super::messages::call;
use super::stores::in_redis;

/// Gateways on one Redis before a server that the test plays.
pub(crate) struct Across {
    pub(crate) redis: Redis,
    pub(crate) server: Scripted,
    pub(crate) gateways: Vec<Gateway>,
}

impl Across {
    pub(crate) async fn start(gateways: usize) -> Self {
        Self::start_with(gateways, |_| {}).await
    }

    pub(crate) async fn start_with(gateways: usize, change: impl Fn(&mut Config)) -> Self {
        let mut across = Self {
            redis: Redis::start_with(&["--enable-debug-command", "local"])
                .await
                .unwrap(),
            server: Scripted::start().await,
            gateways: Vec::new(),
        };
        for _ in 0..gateways {
            let mut config = across.config(in_redis(&across.redis));
            change(&mut config);
            across.gateways.push(Gateway::start(config).await.unwrap());
        }
        across
    }

    pub(crate) fn config(&self, store: Store) -> Config {
        Config {
            store,
            ..config(&[("s", self.server.url())])
        }
    }

    pub(crate) async fn open(&mut self) -> Client {
        Client::open(&self.gateways[0], &mut self.server, "u1").await
    }

    /// The same client at another gateway.
    pub(crate) fn at(&self, client: &Client, gateway: usize) -> Client {
        client.moved_to(&self.gateways[gateway])
    }

    /// Shows that the session works at a gateway, on this upstream session.
    pub(crate) async fn works_at(&mut self, client: &Client, gateway: usize, upstream: &str) {
        let client = self.at(client, gateway);
        let message = call("works");
        let answer = client.send_to(&mut self.server, &message, |asked| {
            assert_eq!(asked.header("mcp-session-id"), upstream);
            asked.result(&json!({}));
        });
        assert_eq!(answer.await.status, 200);
    }
}

/// Asserts the answer of a gateway that cannot know.
pub(crate) fn assert_cannot_know(answer: &Answer) {
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
    assert!(!answer.headers.contains_key("mcp-session-id"));
}

/// Sends a call again and again until it gets this status; only this and `meanwhile` may come.
/// Whoever reaches the server is answered.
pub(crate) async fn until_status(
    across: &mut Across,
    client: &Client,
    wanted: u16,
    meanwhile: u16,
) {
    let began = Instant::now();
    loop {
        let message = call("again");
        let sent = client.send(&message);
        tokio::pin!(sent);
        let answer = loop {
            tokio::select! {
                answer = &mut sent => break answer,
                asked = across.server.next() => asked.result(&json!({})),
            }
        };
        if answer.status == wanted {
            return;
        }
        assert_eq!(answer.status, meanwhile, "{answer:?}");
        if answer.status == 503 {
            assert_cannot_know(&answer);
        }
        assert!(began.elapsed() < PATIENCE, "never {wanted}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits until a gateway has heard of a session's end.
pub(crate) async fn until_gone(across: &mut Across, client: &Client) {
    until_status(across, client, 404, 200).await;
}

/// With `/ready` to look at, and time enough to notice that the store is away.
pub(crate) fn with_grace(config: &mut Config) {
    with_admin(config);
    config.store.grace = Duration::from_secs(6);
}
