//! The cables of one of several gateways: one from its peers, one to the Redis.

use std::net::SocketAddr;

use anyhow::Context as _;
use bowline_testbed::cable::{Cable, Way, free_address};

/// What gateways seal with what they send each other.
const SECRET: &str = "what the gateways of chaos know, and nobody else";

/// The ways of one gateway.
#[derive(Debug)]
pub(super) struct Links {
    listen: SocketAddr,
    from_peers: Cable,
    to_redis: Cable,
}

impl Links {
    /// Those of a gateway on this Redis.
    pub(super) async fn start(redis: &str) -> anyhow::Result<Self> {
        let address = redis.strip_prefix("redis://");
        let address = address.with_context(|| format!("{redis} has no address"))?;
        let listen = free_address()?;
        Ok(Self {
            listen,
            from_peers: Cable::start(listen).await?,
            to_redis: Cable::start(address.trim_end_matches('/').parse()?).await?,
        })
    }

    /// What the gateway's configuration says of them.
    pub(super) fn config(&self) -> String {
        format!(
            "[store]\nkind = \"redis\"\nurl = \"redis://{}\"\n\
             [peers]\nlisten = \"{}\"\nadvertise = \"{}\"\nsecret = {SECRET:?}\n",
            self.to_redis.address(),
            self.listen,
            self.from_peers.address(),
        )
    }

    /// The way on which its peers reach it.
    pub(super) fn peers(&self, way: Way) {
        self.from_peers.set(way);
    }

    pub(super) fn redis(&self, way: Way) {
        self.to_redis.set(way);
    }
}
