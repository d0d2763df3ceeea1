//! Taking over another configuration while sessions go on.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::config::{Config, Limits, ListenAddress, OAuth, Store};
use crate::hub::Shared;
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
    admin: Option<ListenAddress>,
    store: Store,
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
            admin: config.admin.clone(),
            store: config.store.clone(),
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
            ("admin", self.admin != other.admin),
            ("hosts", self.hosts != other.hosts),
            ("origins", self.origins != other.origins),
            ("store", self.store != other.store),
            ("limits", self.limits != other.limits),
            ("oauth", self.oauth != other.oauth),
            ("stop_timeout", self.stop_timeout != other.stop_timeout),
        ];
        let changed = differ.into_iter().filter(|(_, differs)| *differs);
        changed.map(|(key, _)| key).collect()
    }
}

/// Takes another set of servers over, without touching sessions but those of callers that are gone.
pub(super) fn reconfigure(shared: &Shared, config: Config) {
    shared.flows.identities.know(&config.callers);
    shared.callers.replace(&config.callers);
    shared.end_streams_where(|session| !session.is_callers());
    shared.routes.reconfigure(config.servers, |name, server| {
        Arc::new(Upstream::new(name, server, shared.surroundings()))
    });
    let callers = config.callers.len();
    let servers = shared.routes.all();
    shared.streams.share_out(servers.len(), callers);
    let processes = servers
        .values()
        .filter(|one| one.processes_running().is_some());
    shared.processes.share.share_out(processes.count(), callers);
    shared.registry.table.share_out(callers);
    shared.connections.share_out(callers);
    shared.bodies.share_out(callers);
}
