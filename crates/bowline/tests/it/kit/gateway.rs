//! The gateway under test, and what its operator is told.

use bowline::Gateway;
use bowline::config::{Config, Server};
use reqwest::Method;
use serde_json::Value;

use super::client::{Answer, Client, sent};

/// A configuration with these servers, on free ports.
pub(crate) fn config(servers: &[(&str, &str)]) -> Config {
    let servers = servers
        .iter()
        .map(|(name, url)| (name.parse().unwrap(), Server::from_url(url).unwrap()));
    Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        admin: None,
        servers: servers.collect(),
        ..Config::default()
    }
}

/// A gateway before one server, called `s`.
pub(crate) async fn gateway(url: &str) -> Gateway {
    Gateway::start(config(&[("s", url)])).await.unwrap()
}

/// The configuration's only server.
pub(crate) fn only(config: &mut Config) -> &mut Server {
    config.servers.values_mut().next().unwrap()
}

/// With a listener for the operator.
pub(crate) fn with_admin(config: &mut Config) {
    config.admin = Some("127.0.0.1:0".parse().unwrap());
}

/// What the operator's listener says at this path.
pub(crate) async fn admin(gateway: &Gateway, path: &str) -> Answer {
    let url = format!("http://{}{path}", gateway.admin().unwrap());
    sent(Client::at(url).request(Method::GET)).await
}

pub(crate) async fn health(gateway: &Gateway) -> Value {
    admin(gateway, "/health").await.json()
}

/// How many requests were refused for this reason.
pub(crate) async fn refusals(gateway: &Gateway, reason: &str) -> u64 {
    let line = format!("bowline_refusals_total{{reason=\"{reason}\"}} ");
    let metrics = admin(gateway, "/metrics").await.text;
    let mut counts = metrics.lines().filter_map(|told| told.strip_prefix(&line));
    counts.next().map_or(0, |count| count.parse().unwrap())
}
