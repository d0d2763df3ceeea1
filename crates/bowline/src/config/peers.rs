//! How gateways on one store reach each other, as meant.

use std::net::SocketAddr;

use super::{Config, Password, Server, StoreKind, Target, Transport};

/// The fewest characters of the secret: with fewer, it can be found by trying.
pub(crate) const SHORTEST_SECRET: usize = 32;

/// How gateways on one store reach each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peers {
    /// Where the other gateways connect.
    pub listen: SocketAddr,
    /// Host and port at which they find that; what `listen` is when it is left out.
    pub advertise: Option<String>,
    /// What all gateways on the store know, and nobody else.
    pub secret: Password,
}

impl Peers {
    /// Where the others find a gateway that listens here; `None` if nobody said.
    pub(crate) fn address(&self, bound: SocketAddr) -> Option<String> {
        let own = (!bound.ip().is_unspecified()).then(|| bound.to_string());
        self.advertise.clone().or(own)
    }
}

/// Whether a text is a host and a port.
pub(super) fn is_authority(text: &str) -> bool {
    let Ok(authority) = text.parse::<http::uri::Authority>() else {
        return false;
    };
    let is_plain = !text.contains('@') && !authority.host().is_empty();
    is_plain && authority.port_u16().is_some_and(|port| port != 0)
}

impl Config {
    /// What gateways on a shared store cannot do without `[peers]`, if this configuration makes it possible.
    pub fn lacks_peers(&self) -> Option<&'static str> {
        let is_shared = matches!(self.store.kind, StoreKind::Redis(_));
        if !is_shared || self.peers.is_some() {
            return None;
        }
        let lives = |server: &Server| match server.target {
            Target::Command(_) => true,
            Target::Url(_) | Target::Endpoints(_) => server.transport == Transport::Sse,
        };
        match self.servers.values().any(lives) {
            true => Some(
                "a session of a server with a `command`, or of HTTP+SSE, lives in the gateway that opened it: without [peers], the other gateways on the store answer 503 for it",
            ),
            false => None,
        }
    }
}
