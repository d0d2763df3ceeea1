//! A request that passed the guard: who asks, which server, what goes along, which session.

use std::sync::Arc;

use bowline_wire::id::SessionId;
use bowline_wire::{header as mcp, version};
use http::HeaderMap;
use http::request::Parts;

use crate::caller::Caller;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::registry::Ending;
use crate::route::Service;
use crate::session::{InUse, Session};
use crate::upstream::{Carried, MAX_QUERY, Upstream};

/// A client's request, its body aside.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) hub: Arc<Hub>,
    pub(crate) caller: Caller,
    pub(crate) upstream: Arc<Upstream>,
    pub(crate) service: Service,
    pub(crate) headers: HeaderMap,
    pub(crate) carried: Carried,
}

/// A session that a request named and may use.
#[derive(Debug)]
pub(crate) struct FoundSession {
    pub(crate) id: SessionId,
    pub(crate) in_use: InUse,
}

impl Arrival {
    /// Lets a request in that passed the guard, or says why not: who asks first, then for what. A stranger
    /// learns nothing of the servers, not even their names. The headers are taken out of the head.
    pub(crate) fn admit(hub: Arc<Hub>, head: &mut Parts) -> Result<Self, Fault> {
        let path = head.uri.path();
        // Clients look for metadata before they have a key, and there is none to protect.
        if path.starts_with("/.well-known/") {
            return Err(Fault::NoMetadata);
        }
        let caller = hub.callers.identify(head)?;
        // Some clients have a URL that names the socket, and no place for a path.
        let is_bare = path == "/" && hub.guard.is_of_socket();
        let (upstream, service) = hub.routes.by_path(if is_bare { "/mcp" } else { path })?;
        if !hub.callers.may_use(&caller, &upstream.name) {
            return Err(Fault::NoSuchServer);
        }
        let query = head.uri.query();
        if query.is_some_and(|query| query.len() > MAX_QUERY) {
            return Err(Fault::QueryTooLong { limit: MAX_QUERY });
        }
        let carried = Carried::of(query, &head.headers, &upstream.config());
        Ok(Self {
            hub,
            caller,
            upstream,
            service,
            headers: std::mem::take(&mut head.headers),
            carried,
        })
    }

    /// Refuses what would begin a session where none can begin.
    pub(crate) fn refuse_new(&self) -> Result<(), Fault> {
        if self.hub.drain.has_begun() {
            return Err(Fault::Stopping);
        }
        if self.upstream.is_retired() {
            return Err(Fault::NoSuchServer);
        }
        if self.hub.pseudonym.is_in(&self.headers) {
            let server = self.upstream.name.clone();
            return Err(Fault::Loop { server });
        }
        Ok(())
    }

    /// The session that was found, and what its messages are sent with. The rest is let go: headers are
    /// parts of the connection's read buffer, and would keep it as long as the answer takes.
    pub(crate) fn into_exchange(self, found: FoundSession) -> Exchange {
        Exchange {
            registry: Arc::clone(&self.hub.registry),
            id: found.id,
            in_use: found.in_use,
            carried: self.carried,
        }
    }

    /// The session that the request names: its caller's, on the path of its server. Anybody
    /// else's gets the same refusal as one that never existed.
    pub(crate) async fn find(&self) -> Result<FoundSession, Fault> {
        let value = self
            .headers
            .get(mcp::SESSION_ID)
            .ok_or(Fault::SessionRequired)?;
        let id = SessionId::from_header(value).ok_or(Fault::UnknownSession)?;
        let found = self.hub.registry.table.find(&id, &self.upstream).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        let in_use = found
            .filter(|in_use| self.may_use(in_use.session()))
            .ok_or(Fault::UnknownSession)?;
        let session = in_use.session();
        let max_age = self.hub.limits.session_max_age;
        if max_age.is_some_and(|max_age| session.age() >= max_age) {
            self.hub
                .registry
                .end_session(&id, Ending::TooOld, &Carried::default());
            return Err(Fault::UnknownSession);
        }
        let named = self.headers.get(mcp::PROTOCOL_VERSION);
        match named.map(|version| version.to_str()) {
            None => {}
            Some(Ok(named)) if version::is_supported(named) || named == session.leg().version() => {
            }
            Some(_) => return Err(Fault::ProtocolVersion),
        }
        Ok(FoundSession { id, in_use })
    }

    fn may_use(&self, session: &Session) -> bool {
        session.caller == self.caller && Arc::ptr_eq(&session.upstream, &self.upstream)
    }
}
