//! Gateways with peers, before a server that is a program.

use std::path::Path;

use bowline::Gateway;
use bowline::config::{Config, Password, Peers};
use bowline_testbed::redis::Redis;
use serde_json::{Value, json};

use crate::kit::client::Client;
use crate::kit::gateway::{admin, with_admin};
use crate::kit::messages::{call, list};
use crate::kit::programs::{Tally, command, config_of, text_of};
use crate::kit::stores::at_redis;

pub(super) const SECRET: &str = "a secret of gateways, and of nobody else";

/// Gateways on one Redis, and a session at the first, whose client knows the tools.
pub(super) struct Fleet {
    pub(super) redis: Redis,
    pub(super) tally: Tally,
    pub(super) gateways: Vec<Gateway>,
    pub(super) client: Client,
}

/// How gateways reach each other.
pub(super) fn peers(secret: &str) -> Peers {
    Peers {
        listen: "127.0.0.1:0".parse().unwrap(),
        advertise: None,
        secret: Password::Written(secret.to_owned()),
    }
}

/// A gateway with peers, before a server that writes down what it does.
pub(super) fn config(redis: &Redis, tally: &Tally) -> Config {
    config_at(&redis.url(), &tally.path())
}

/// The same where both are named.
pub(super) fn config_at(redis: &str, tally: &Path) -> Config {
    let mut config = config_of(command(tally));
    config.store = at_redis(redis);
    config.peers = Some(peers(SECRET));
    with_admin(&mut config);
    config
}

/// A call of a tool.
pub(super) fn calling(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    let mut message = call(id);
    message["params"] = json!({"name": tool, "arguments": arguments});
    message
}

impl Fleet {
    pub(super) async fn start(gateways: usize) -> Option<Self> {
        Self::start_with(gateways, |_, _| {}).await
    }

    /// With each configuration changed, by its number.
    pub(super) async fn start_with(
        gateways: usize,
        change: impl Fn(usize, &mut Config),
    ) -> Option<Self> {
        let Ok(redis) = Redis::start().await else {
            bowline_testbed::skip("no Redis");
            return None;
        };
        Some(Self::start_on(redis, gateways, change).await)
    }

    /// The same on this Redis.
    pub(super) async fn start_on(
        redis: Redis,
        gateways: usize,
        change: impl Fn(usize, &mut Config),
    ) -> Self {
        let tally = Tally::default();
        let mut started = Vec::new();
        for number in 0..gateways {
            let mut config = config(&redis, &tally);
            change(number, &mut config);
            started.push(Gateway::start(config).await.unwrap());
        }
        let client = Client::new(&started[0]);
        Self {
            redis,
            tally,
            gateways: started,
            client,
        }
    }

    /// Opens the session.
    pub(super) async fn open(mut self) -> Self {
        assert_eq!(self.client.begin().await.status, 200);
        self.learn_tools(0).await;
        self
    }

    pub(super) async fn learn_tools(&self, gateway: usize) {
        let mut second = list("page 2");
        second["params"] = json!({"cursor": "second"});
        for page in [list("page 1"), second] {
            assert_eq!(self.at(gateway).send(&page).await.status, 200);
        }
    }

    /// The client at a gateway.
    pub(super) fn at(&self, gateway: usize) -> Client {
        self.client.moved_to(&self.gateways[gateway])
    }

    /// The process that serves the session.
    pub(super) async fn pid(&self, gateway: usize) -> u32 {
        let (client, key) = (self.at(gateway), json!({"key": "pid"}));
        let answer = client.call("pid", "peek", &key).await;
        text_of(&answer).parse().unwrap()
    }

    /// A gateway's name among those on the store.
    pub(super) async fn name(&self, gateway: usize) -> String {
        let health = admin(&self.gateways[gateway], "/health").await.json();
        health["store"]["gateway"].as_str().unwrap().to_owned()
    }

    /// How often this metric has been counted with this outcome.
    pub(super) async fn count(&self, gateway: usize, metric: &str, outcome: &str) -> u64 {
        let line = format!("bowline_{metric}_total{{outcome=\"{outcome}\"}} ");
        let metrics = admin(&self.gateways[gateway], "/metrics").await.text;
        let mut counts = metrics.lines().filter_map(|told| told.strip_prefix(&line));
        counts.next().map_or(0, |count| count.parse().unwrap())
    }
}
