//! Which server a request is for: the path says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::ServerName;
use crate::fault::Fault;
use crate::upstream::Upstream;

/// The configured servers, by name.
#[derive(Debug)]
pub(crate) struct Routes(BTreeMap<ServerName, Arc<Upstream>>);

impl Routes {
    pub(crate) fn new(upstreams: impl IntoIterator<Item = Arc<Upstream>>) -> Self {
        let named = upstreams
            .into_iter()
            .map(|upstream| (upstream.name.clone(), upstream));
        Self(named.collect())
    }

    /// The server of a path: `/mcp/{server}`, or `/mcp` where there is only one.
    pub(crate) fn by_path(&self, path: &str) -> Result<&Arc<Upstream>, Fault> {
        match path.strip_prefix("/mcp") {
            Some("" | "/") => match self.0.values().next() {
                Some(only) if self.0.len() == 1 => Ok(only),
                _ => Err(Fault::ServerNotNamed),
            },
            Some(rest) => {
                let name = rest.strip_prefix('/').ok_or(Fault::NoSuchPath)?;
                let name = name.strip_suffix('/').unwrap_or(name);
                self.0.get(name).ok_or(Fault::NoSuchServer)
            }
            None => Err(Fault::NoSuchPath),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.0.values()
    }
}
