//! A request that passed the guard: who asks, which server, what goes along, which session.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::{header as mcp, version};
use http::HeaderMap;
use http::request::Parts;

use crate::caller::Caller;
use crate::exchange::Exchange;
use crate::fault::Fault;
use crate::hub::Hub;
use crate::registry::Ending;
use crate::route::union::Union;
use crate::route::{Destination, Service, Way};
use crate::session::InUse;
use crate::union::Attached;
use crate::union::attachment::AttachmentUse;
use crate::union::dialog::Dialog;
use crate::upstream::{Carried, MAX_QUERY, Upstream};

/// What a request named and may use.
#[derive(Debug)]
pub(crate) enum Found {
    Session { id: SessionId, in_use: InUse },
    Attachment(AttachmentUse),
}

/// A client's request, its body aside.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) hub: Arc<Hub>,
    pub(crate) caller: Caller,
    pub(crate) to: Destination,
    pub(crate) service: Service,
    /// Whether the path names no server and no union.
    is_common: bool,
    pub(crate) headers: HeaderMap,
    pub(crate) carried: Carried,
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
        let way = hub.routes.by_path(if is_bare { "/mcp" } else { path })?;
        let Way {
            to,
            service,
            is_common,
        } = way;
        if let Destination::Server(upstream) = &to
            && !hub.callers.may_use(&caller, &upstream.name)
        {
            return Err(Fault::NoSuchServer);
        }
        let query = head.uri.query();
        if query.is_some_and(|query| query.len() > MAX_QUERY) {
            return Err(Fault::QueryTooLong { limit: MAX_QUERY });
        }
        let carried = to.carried(query, &head.headers);
        Ok(Self {
            hub,
            caller,
            to,
            service,
            is_common,
            headers: std::mem::take(&mut head.headers),
            carried,
        })
    }

    /// Refuses what would begin a session where none can begin.
    pub(crate) fn refuse_new(&self) -> Result<(), Fault> {
        if self.hub.drain.has_begun() {
            return Err(Fault::Stopping);
        }
        if self.to.is_retired() {
            return Err(Fault::NoSuchServer);
        }
        if self.hub.pseudonym.is_in(&self.headers) {
            let server = self.to.name().clone();
            return Err(Fault::Loop { server });
        }
        Ok(())
    }

    /// What was found, and what its messages are sent with. The rest is let go: headers are parts of the
    /// connection's read buffer, and would keep it as long as the answer takes.
    pub(crate) fn into_dialog(self, found: Found) -> Dialog {
        match found {
            Found::Session { id, in_use } => Dialog::Session(Exchange {
                registry: Arc::clone(&self.hub.registry),
                id,
                carried: match self.to {
                    Destination::Server(_) => self.carried,
                    Destination::Union(_) => {
                        self.carried.for_server(&in_use.session().upstream.config())
                    }
                },
                in_use,
            }),
            Found::Attachment(in_use) => {
                let mut carried = self.carried;
                carried.via = self.hub.pseudonym.after(&self.headers);
                Dialog::Attachment(Attached {
                    unions: Arc::clone(&self.hub.unions),
                    in_use,
                    carried,
                })
            }
        }
    }

    /// What the request names: its caller's, on the path of its server or union. Anybody else's gets the same
    /// refusal as one that never existed.
    pub(crate) async fn find(&self) -> Result<Found, Fault> {
        let value = self
            .headers
            .get(mcp::SESSION_ID)
            .ok_or(Fault::SessionRequired)?;
        let id = SessionId::from_header(value).ok_or(Fault::UnknownSession)?;
        let Destination::Server(upstream) = &self.to else {
            return Box::pin(self.find_in_union(&id)).await;
        };
        match self.session(&id, upstream).await? {
            Some(in_use) => self.current(Found::Session { id, in_use }),
            None if self.is_common => Box::pin(self.find_attachment(&id)).await,
            None => Err(Fault::UnknownSession),
        }
    }

    /// The session of this server with this id, if it is this caller's.
    async fn session(
        &self,
        id: &SessionId,
        upstream: &Arc<Upstream>,
    ) -> Result<Option<InUse>, Fault> {
        let found = self.hub.registry.table.find(id, upstream).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        Ok(found.filter(|in_use| {
            let session = in_use.session();
            session.caller == self.caller && Arc::ptr_eq(&session.upstream, upstream)
        }))
    }

    /// What may be used now, unless it is too old, or in another revision than the request says.
    fn current(&self, found: Found) -> Result<Found, Fault> {
        if self.hub.registry.is_too_old(|| found.age()) {
            found.end(&self.hub);
            return Err(Fault::UnknownSession);
        }
        let named = self.headers.get(mcp::PROTOCOL_VERSION);
        match named.map(|version| version.to_str()) {
            None => {}
            Some(Ok(named)) if version::is_supported(named) || found.is_of(named) => {}
            Some(_) => return Err(Fault::ProtocolVersion),
        }
        Ok(found)
    }

    /// An attachment of the union of this path, or a session from before there were several servers.
    async fn find_in_union(&self, id: &SessionId) -> Result<Found, Fault> {
        let Destination::Union(union) = &self.to else {
            return Err(Fault::UnknownSession);
        };
        if self.is_common && !self.may_be_known(id, union).await? {
            return Err(Fault::UnknownSession);
        }
        if let Some(in_use) = self.attachment(id, union).await? {
            return self.current(Found::Attachment(in_use));
        }
        if !self.is_common {
            return Err(Fault::UnknownSession);
        }
        for server in &union.now().servers {
            // A member is nobody's but its attachment's.
            if let Some(in_use) = self.session(id, server).await?
                && !in_use.session().leg().generation.is_of_member()
            {
                return self.current(Found::Session { id: *id, in_use });
            }
        }
        Err(Fault::UnknownSession)
    }

    /// Whether it is worth to ask for each of what can be named at the common path.
    async fn may_be_known(&self, id: &SessionId, union: &Union) -> Result<bool, Fault> {
        let Hub {
            registry, unions, ..
        } = &*self.hub;
        let Some(store) = registry.table.session_store() else {
            return Ok(true);
        };
        if unions.has_cached(id) || registry.table.has_cached(id) {
            return Ok(true);
        }
        let now = union.now();
        let servers = now.servers.iter().map(|server| server.name.as_ref());
        let scopes = std::iter::once(union.name.as_ref()).chain(servers);
        let may_know = store.may_know(id, scopes).await;
        may_know.map_err(|error| Fault::store_failed(&error))
    }

    /// An attachment from before there was only one server.
    async fn find_attachment(&self, id: &SessionId) -> Result<Found, Fault> {
        let union = self.hub.routes.common_union();
        let union = union.ok_or(Fault::UnknownSession)?;
        let found = self.attachment(id, &union).await?;
        self.current(Found::Attachment(found.ok_or(Fault::UnknownSession)?))
    }

    async fn attachment(
        &self,
        id: &SessionId,
        union: &Arc<Union>,
    ) -> Result<Option<AttachmentUse>, Fault> {
        let found = self.hub.unions.find(id, union).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        Ok(found.filter(|in_use| {
            let attachment = in_use.attachment();
            attachment.caller == self.caller && attachment.union.name == union.name
        }))
    }
}

// === impl Found ===

impl Found {
    fn age(&self) -> Duration {
        match self {
            Self::Session { in_use, .. } => in_use.session().age(),
            Self::Attachment(in_use) => in_use.attachment().age(),
        }
    }

    fn is_of(&self, version: &str) -> bool {
        match self {
            Self::Session { in_use, .. } => in_use.session().leg().version() == version,
            Self::Attachment(in_use) => in_use.attachment().version.as_str() == version,
        }
    }

    /// Ends what has reached its maximum age.
    fn end(&self, hub: &Hub) {
        match self {
            Self::Session { id, .. } => {
                let registry = &hub.registry;
                registry.end_session(id, Ending::TooOld, &Carried::default());
            }
            Self::Attachment(in_use) => hub.unions.end_later(in_use.attachment(), Ending::TooOld),
        }
    }
}
