//! Taking over another configuration while sessions go on.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::{Config, Limits, ListenAddress, OAuth, Peers, Store};
use crate::hub::Hub;
use crate::upstream::Upstream;

/// Why a running gateway did not take over a configuration; it goes on as before.
#[derive(Debug, Error)]
#[error("`{}` cannot change while the gateway runs; restart it, or change that back", .keys.join("` and `"))]
pub struct ReloadError {
    /// The configuration's names for what would have changed, at least one.
    pub keys: Vec<&'static str>,
}

/// What the configuration said at the start and cannot say differently later.
#[derive(Debug)]
pub(super) struct StartupSettings {
    listen: ListenAddress,
    /// Whether there is a certificate, which itself can change.
    tls: bool,
    admin: Option<ListenAddress>,
    store: Store,
    peers: Option<Peers>,
    hosts: Vec<String>,
    origins: Vec<String>,
    limits: Limits,
    oauth: OAuth,
    stop_timeout: Duration,
}

// === impl StartupSettings ===

impl StartupSettings {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            listen: config.listen.clone(),
            tls: config.tls.is_some(),
            admin: config.admin.clone(),
            store: config.store.clone(),
            peers: config.peers.clone(),
            hosts: config.hosts.clone(),
            origins: config.origins.clone(),
            limits: config.limits.clone(),
            oauth: config.oauth.clone(),
            stop_timeout: config.stop_timeout,
        }
    }

    pub(super) fn differences(&self, other: &Self) -> Vec<&'static str> {
        let differ = [
            ("listen", self.listen != other.listen),
            ("tls", self.tls != other.tls),
            ("admin", self.admin != other.admin),
            ("hosts", self.hosts != other.hosts),
            ("origins", self.origins != other.origins),
            ("store", self.store != other.store),
            ("peers", self.peers != other.peers),
            ("limits", self.limits != other.limits),
            ("oauth", self.oauth != other.oauth),
            ("stop_timeout", self.stop_timeout != other.stop_timeout),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| key).collect()
    }
}

/// Takes another set of servers over, without touching sessions but those of callers that are gone and those whose
/// token is gone.
pub(super) fn reconfigure(hub: &Hub, config: Config) {
    hub.callers.replace(&config.callers);
    hub.end_streams_of_the_unpermitted();
    let unions = config.all_unions();
    let make = |name, server| Arc::new(Upstream::new(name, server, hub.surroundings()));
    hub.routes
        .reconfigure(config.servers, unions, hub.union_parts(), make);
    // Their servers, or the names of these, may be others now.
    hub.unions.all_changed();
    hub.flows.recheck_issuers();
    // What comes on them is for the account of before.
    hub.end_streams_where(|session| session.leg().has_other_credentials());
    let callers = config.callers.len();
    let servers = hub.routes.all();
    hub.streams.share_out(servers.len(), callers);
    let processes = servers
        .values()
        .filter(|one| one.processes_running().is_some());
    hub.channels.processes.share_out(processes.count(), callers);
    hub.registry.table.share_out(callers);
    hub.connections.share_out(callers);
    hub.bodies.share_out(callers);
}
