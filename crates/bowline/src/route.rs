//! Which server a request is for, and over which transport: the path says so.
//!
//! `/mcp/NAME` is streamable HTTP, and `/sse/NAME` is HTTP+SSE. Some clients guess the transport by the end of
//! the path, so every server is also at `/NAME/mcp` and `/NAME/sse`. A first segment that means something else
//! always means that: a server of such a name has the first two paths only.

pub(crate) mod names;
pub(crate) mod union;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use self::union::{COMMON, Union, UnionParts};
use crate::caller::Caller;
use crate::callers::{Callers, Permitted};
use crate::config::{self, Server, ServerName};
use crate::fault::Fault;
use crate::share::ServerShares;
use crate::telemetry::ServerMetrics;
use crate::upstream::{Carried, Upstream};
use http::HeaderMap;

/// First segments with a meaning of their own, here or at the operator's listener, which may be behind the same
/// proxy.
const RESERVED: [&str; 7] = ["mcp", "sse", "oauth", "api", "health", "ready", "metrics"];

/// The transport of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    Streamable,
    HttpSse,
}

/// What a path says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Route<'a> {
    pub(crate) service: Service,
    /// The server; `None` for the only one.
    pub(crate) server: Option<&'a str>,
    /// The token of the stream that a message is for.
    pub(crate) token: Option<&'a str>,
}

// === impl Route ===

impl<'a> Route<'a> {
    /// What this path says, if something is served there.
    pub(crate) fn of(path: &'a str) -> Option<Self> {
        let rest = path.strip_prefix('/')?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (first, rest) = match rest.split_once('/') {
            Some((first, rest)) => (first, Some(rest)),
            None => (rest, None),
        };
        match (first, rest) {
            ("mcp", server) => Some(Self {
                service: Service::Streamable,
                server,
                token: None,
            }),
            ("sse", None) => Some(Self::stream(None, None)),
            ("sse", Some(rest)) => Some(match rest.split_once('/') {
                Some((server, token)) => Self::stream(Some(server), Some(token)),
                None => Self::stream(Some(rest), None),
            }),
            (server, Some("mcp")) if !is_reserved(server) => Some(Self {
                service: Service::Streamable,
                server: Some(server),
                token: None,
            }),
            (server, Some(rest)) if !is_reserved(server) => match rest.split_once('/') {
                None if rest == "sse" => Some(Self::stream(Some(server), None)),
                Some(("sse", token)) => Some(Self::stream(Some(server), Some(token))),
                _ => None,
            },
            _ => None,
        }
    }

    fn stream(server: Option<&'a str>, token: Option<&'a str>) -> Self {
        Self {
            service: Service::HttpSse,
            server,
            token,
        }
    }
}

fn is_reserved(first: &str) -> bool {
    RESERVED.contains(&first) || first.starts_with('.')
}

/// What a path leads to.
#[derive(Debug, Clone)]
pub(crate) enum Destination {
    Server(Arc<Upstream>),
    Union(Arc<Union>),
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) to: Destination,
    /// The transport.
    pub(crate) service: Service,
    /// Whether the path names nothing, as `/mcp` and `/sse`.
    pub(crate) is_common: bool,
}

/// The configured servers by name, and those that are no longer configured but have sessions; and the unions.
#[derive(Debug)]
pub(crate) struct Routes {
    named: RwLock<Arc<Named>>,
    unions: RwLock<BTreeMap<ServerName, Arc<Union>>>,
    /// Unions that are no longer configured, as long as somebody uses them: they may be again.
    former_unions: Mutex<Vec<Weak<Union>>>,
}

type Named = HashMap<ServerName, Arc<Upstream>>;

/// The unions of a configuration, by name.
pub(crate) type ConfiguredUnions = BTreeMap<ServerName, config::Union>;

// === impl Destination ===

impl Destination {
    pub(crate) fn name(&self) -> &ServerName {
        match self {
            Self::Server(upstream) => &upstream.name,
            Self::Union(union) => &union.name,
        }
    }

    /// A caller's leave to speak there now. Which servers of a union it may use is asked for each of them.
    pub(crate) fn permit<'a>(
        &'a self,
        callers: &Callers,
        caller: &'a Caller,
    ) -> Option<Permitted<'a>> {
        match self {
            Self::Server(upstream) => callers.permit(caller, &upstream.name),
            Self::Union(union) => callers.permit_union(caller, &union.name),
        }
    }

    /// Counts its requests.
    pub(crate) fn answered(&self) -> &ServerMetrics {
        match self {
            Self::Server(upstream) => &upstream.answered,
            Self::Union(union) => &union.answered,
        }
    }

    /// The places of its clients' streams.
    pub(crate) fn streams(&self) -> &ServerShares {
        match self {
            Self::Server(upstream) => &upstream.streams,
            Self::Union(union) => &union.streams,
        }
    }

    /// How long one call may take, if there is a limit for all.
    pub(crate) fn call_timeout(&self) -> Option<Duration> {
        match self {
            Self::Server(upstream) => upstream.config().call_timeout,
            Self::Union(_) => None,
        }
    }

    /// What goes along with a message of this request.
    pub(crate) fn carried(&self, query: Option<&str>, headers: &HeaderMap) -> Carried {
        match self {
            Self::Server(upstream) => Carried::of(query, headers, &upstream.config()),
            Self::Union(union) => Carried::of_all(query, headers, &union.now().forwarded),
        }
    }

    /// Whether no new session can begin there.
    pub(crate) fn is_retired(&self) -> bool {
        match self {
            Self::Server(upstream) => upstream.is_retired(),
            Self::Union(_) => false,
        }
    }

    /// Does not use connections of before.
    pub(crate) fn drop_idle_connections(&self) {
        match self {
            Self::Server(upstream) => upstream.drop_idle_connections(),
            Self::Union(union) => {
                let now = union.now();
                now.servers
                    .iter()
                    .for_each(|one| one.drop_idle_connections());
            }
        }
    }
}

// === impl Routes ===

impl Routes {
    pub(crate) fn new(
        upstreams: impl IntoIterator<Item = Arc<Upstream>>,
        unions: ConfiguredUnions,
        parts: UnionParts<'_>,
    ) -> Self {
        let named = upstreams
            .into_iter()
            .map(|upstream| (upstream.name.clone(), upstream));
        let named: Named = named.collect();
        let unions = union::configured(&BTreeMap::new(), unions, &named, parts);
        Self {
            named: RwLock::new(Arc::new(named)),
            unions: RwLock::new(unions),
            former_unions: Mutex::default(),
        }
    }

    /// Where a path leads. Where it names nothing, that is the only server, or the union of all.
    pub(crate) fn by_path(&self, path: &str) -> Result<Way, Fault> {
        let Route {
            service, server, ..
        } = Route::of(path).ok_or(Fault::NoSuchPath)?;
        let to = match server {
            None => match self.only() {
                Some(only) => Destination::Server(only),
                None => self.union(COMMON).ok_or(Fault::ServerNotNamed)?,
            },
            Some(name) => self.named(name).ok_or(Fault::NoSuchServer)?,
        };
        Ok(Way {
            to,
            service,
            is_common: server.is_none(),
        })
    }

    /// The server or the union of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Destination> {
        let found = self.named.read().get(name).cloned();
        match found {
            Some(upstream) => Some(Destination::Server(upstream)),
            None => self.union(name),
        }
    }

    fn union(&self, name: &str) -> Option<Destination> {
        let union = self.unions.read().get(name).cloned();
        union.map(Destination::Union)
    }

    /// The union of all servers, also where the path without a name leads to the only one.
    pub(crate) fn common_union(&self) -> Option<Arc<Union>> {
        self.unions.read().get(COMMON).cloned()
    }

    /// The server, if exactly one is configured.
    pub(crate) fn only(&self) -> Option<Arc<Upstream>> {
        let named = self.named.read();
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
        unions: ConfiguredUnions,
        parts: UnionParts<'_>,
        make: impl Fn(ServerName, Server) -> Arc<Upstream>,
    ) {
        let mut named = self.named.write();
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
        self.reconfigure_unions(unions, &next, parts);
        *named = Arc::new(next);
    }

    fn reconfigure_unions(&self, unions: ConfiguredUnions, named: &Named, parts: UnionParts<'_>) {
        let (mut known, mut former) = (self.unions.write(), self.former_unions.lock());
        let mut before = std::mem::take(&mut *known);
        let used = former.iter().filter_map(Weak::upgrade);
        before.extend(used.map(|union| (union.name.clone(), union)));
        *known = union::configured(&before, unions, named, parts);
        before.retain(|name, _| !known.contains_key(name));
        *former = before.values().map(Arc::downgrade).collect();
    }

    /// Does the regular work of every upstream, and forgets those that are gone.
    pub(crate) fn tend(&self) {
        let all = self.all();
        all.values().for_each(Upstream::tend);
        let is_gone = |upstream: &Upstream| upstream.is_retired() && upstream.sessions() == 0;
        if all.values().any(|upstream| is_gone(upstream)) {
            let mut named = self.named.write();
            let left = named.iter().filter(|(_, upstream)| !is_gone(upstream));
            *named = Arc::new(
                left.map(|(name, upstream)| (name.clone(), Arc::clone(upstream)))
                    .collect(),
            );
        }
    }

    /// Every upstream by name.
    pub(crate) fn all(&self) -> Arc<Named> {
        Arc::clone(&self.named.read())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streamable(server: Option<&str>) -> Option<Route<'_>> {
        Some(Route {
            service: Service::Streamable,
            server,
            token: None,
        })
    }

    fn stream<'a>(server: Option<&'a str>, token: Option<&'a str>) -> Option<Route<'a>> {
        Some(Route::stream(server, token))
    }

    #[test]
    fn a_path_names_server_and_transport_in_either_order() {
        for (path, route) in [
            ("/mcp", streamable(None)),
            ("/mcp/", streamable(None)),
            ("/mcp/a", streamable(Some("a"))),
            ("/mcp/a/", streamable(Some("a"))),
            ("/a/mcp", streamable(Some("a"))),
            ("/a/mcp/", streamable(Some("a"))),
            ("/mcpx/mcp", streamable(Some("mcpx"))),
            ("/sse", stream(None, None)),
            ("/sse/", stream(None, None)),
            ("/sse/a", stream(Some("a"), None)),
            ("/sse/a/", stream(Some("a"), None)),
            ("/a/sse", stream(Some("a"), None)),
            ("/sse/a/t", stream(Some("a"), Some("t"))),
            ("/a/sse/t", stream(Some("a"), Some("t"))),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
    }

    #[test]
    fn a_name_that_means_something_else_is_never_read_in_two_ways() {
        for (path, route) in [
            // Servers called `sse` and `mcp`.
            ("/mcp/sse", streamable(Some("sse"))),
            ("/sse/mcp", stream(Some("mcp"), None)),
            ("/mcp/mcp", streamable(Some("mcp"))),
            ("/sse/sse", stream(Some("sse"), None)),
            ("/sse/sse/t", stream(Some("sse"), Some("t"))),
            ("/mcp/api", streamable(Some("api"))),
        ] {
            assert_eq!(Route::of(path), route, "{path}");
        }
        for path in [
            "",
            "/",
            "/a",
            "/mcpx",
            "/ssex",
            "/a/b",
            "/a/mcp/x",
            "/api/mcp",
            "/oauth/sse",
            "/health/mcp",
            "/ready/sse",
            "/metrics/mcp",
            "/.well-known/mcp",
            "//mcp/x",
            "/a/ssex",
            "/a/sse2/t",
        ] {
            assert_eq!(Route::of(path), None, "{path}");
        }
    }
}
