//! A union: several servers that are served as one. Which servers those are, and how their tools are named, is
//! configuration, which a reload changes; who uses it is in `union/`.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use parking_lot::RwLock;

use super::Named;
use super::names::Names;
use crate::config::{self, ServerName};
use crate::share::{ServerShares, Share};
use crate::telemetry::{Metrics, ServerMetrics};
use crate::upstream::{Upstream, names_for_all};

pub(super) use crate::config::COMMON_UNION as COMMON;

/// Several servers that are served as one.
#[derive(Debug)]
pub(crate) struct Union {
    pub(crate) name: ServerName,
    /// Counts its requests.
    pub(crate) answered: ServerMetrics,
    /// The places of its clients' streams.
    pub(crate) streams: ServerShares,
    now: RwLock<Arc<UnionMembers>>,
}

/// What a union consists of, until the next reload.
#[derive(Debug)]
pub(crate) struct UnionMembers {
    /// In the order of the configuration.
    pub(crate) servers: Vec<Arc<Upstream>>,
    /// What their tools and prompts are called.
    pub(crate) names: Names,
    /// The headers that clients may send to any of them.
    pub(crate) forwarded: Vec<HeaderName>,
}

/// What unions are made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UnionParts<'a> {
    pub(crate) metrics: &'a Metrics,
    pub(crate) streams: &'a Arc<Share>,
}

// === impl Union ===

impl Union {
    fn new(name: ServerName, now: UnionMembers, parts: UnionParts<'_>) -> Self {
        Self {
            answered: parts.metrics.of_server(&name),
            streams: ServerShares::of(parts.streams),
            name,
            now: RwLock::new(Arc::new(now)),
        }
    }

    /// What it consists of now.
    pub(crate) fn now(&self) -> Arc<UnionMembers> {
        Arc::clone(&self.now.read())
    }

    /// One of its servers.
    pub(crate) fn server(&self, name: &str) -> Option<Arc<Upstream>> {
        let now = self.now.read();
        let mut servers = now.servers.iter();
        servers.find(|one| one.name.as_ref() == name).cloned()
    }
}

// === impl UnionMembers ===

impl UnionMembers {
    fn of(config: &config::Union, named: &Named) -> Self {
        let servers = config.servers.iter();
        let servers: Vec<Arc<Upstream>> = servers
            .filter_map(|name| named.get(name).cloned())
            .collect();
        let prefixes = servers.iter().map(|server| {
            let prefix = server.config().prefix(&server.name).to_owned();
            (server.name.clone(), prefix)
        });
        let configured: Vec<_> = servers.iter().map(|one| one.config()).collect();
        Self {
            names: Names::new(config, prefixes),
            forwarded: names_for_all(configured.iter().map(|one| &**one)),
            servers,
        }
    }
}

/// The unions of a configuration, by name. Those that were there before stay the same, with other members.
pub(super) fn configured(
    before: &BTreeMap<ServerName, Arc<Union>>,
    unions: BTreeMap<ServerName, config::Union>,
    named: &Named,
    parts: UnionParts<'_>,
) -> BTreeMap<ServerName, Arc<Union>> {
    let unions = unions.into_iter().map(|(name, config)| {
        let members = UnionMembers::of(&config, named);
        let union = match before.get(&name) {
            Some(known) => {
                *known.now.write() = Arc::new(members);
                Arc::clone(known)
            }
            None => Arc::new(Union::new(name.clone(), members, parts)),
        };
        (name, union)
    });
    unions.collect()
}
