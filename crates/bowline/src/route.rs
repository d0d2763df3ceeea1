//! Which server a request is for: the path says so.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::config::{Server, ServerName};
use crate::fault::Fault;
use crate::upstream::Upstream;

/// The configured servers by name, and those that are no longer configured but have sessions.
#[derive(Debug)]
pub(crate) struct Routes(RwLock<Arc<Named>>);

type Named = HashMap<ServerName, Arc<Upstream>>;

impl Routes {
    pub(crate) fn new(upstreams: impl IntoIterator<Item = Arc<Upstream>>) -> Self {
        let named = upstreams
            .into_iter()
            .map(|upstream| (upstream.name.clone(), upstream));
        Self(RwLock::new(Arc::new(named.collect())))
    }

    /// The server of a path: `/mcp/{server}`, or `/mcp` where there is only one.
    pub(crate) fn by_path(&self, path: &str) -> Result<Arc<Upstream>, Fault> {
        match path.strip_prefix("/mcp") {
            Some("" | "/") => self.only().ok_or(Fault::ServerNotNamed),
            Some(rest) => {
                let name = rest.strip_prefix('/').ok_or(Fault::NoSuchPath)?;
                let name = name.strip_suffix('/').unwrap_or(name);
                let named = self.0.read();
                named.get(name).cloned().ok_or(Fault::NoSuchServer)
            }
            None => Err(Fault::NoSuchPath),
        }
    }

    /// The server, if exactly one is configured.
    pub(crate) fn only(&self) -> Option<Arc<Upstream>> {
        let named = self.0.read();
        let mut configured = named.values().filter(|upstream| !upstream.is_retired());
        match (configured.next(), configured.next()) {
            (Some(only), None) => Some(Arc::clone(only)),
            _ => None,
        }
    }

    /// Takes a new set of servers over. Known ones go on with their sessions under the new
    /// configuration, new ones are made by `make`, and others take no new sessions.
    pub(crate) fn reconfigure(
        &self,
        servers: BTreeMap<ServerName, Server>,
        make: impl Fn(ServerName, Server) -> Arc<Upstream>,
    ) {
        let mut named = self.0.write();
        let mut next = Named::new();
        for (name, upstream) in named.iter() {
            if !servers.contains_key(name) {
                upstream.retire();
                if upstream.sessions() > 0 {
                    next.insert(name.clone(), Arc::clone(upstream));
                }
            }
        }
        for (name, server) in servers {
            let upstream = match named.get(&name) {
                Some(known) => {
                    known.reconfigure(server);
                    Arc::clone(known)
                }
                None => make(name.clone(), server),
            };
            next.insert(name, upstream);
        }
        *named = Arc::new(next);
    }

    /// Does the regular work of every upstream, and forgets those that are gone.
    pub(crate) fn tend(&self) {
        let all = self.all();
        all.values().for_each(Upstream::tend);
        let is_gone = |upstream: &Upstream| upstream.is_retired() && upstream.sessions() == 0;
        if all.values().any(|upstream| is_gone(upstream)) {
            let mut named = self.0.write();
            let left = named.iter().filter(|(_, upstream)| !is_gone(upstream));
            *named = Arc::new(
                left.map(|(name, upstream)| (name.clone(), Arc::clone(upstream)))
                    .collect(),
            );
        }
    }

    /// Every upstream by name.
    pub(crate) fn all(&self) -> Arc<Named> {
        Arc::clone(&self.0.read())
    }
}
