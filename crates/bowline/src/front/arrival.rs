//! A request that passed the guard: who asks, which server, what goes along, which session.

use std::sync::Arc;

use bowline_wire::id::SessionId;
use bowline_wire::{header as mcp, version};
use http::HeaderMap;
use http::request::Parts;

use crate::caller::Caller;
use crate::exchange::leaving::Leaving;
use crate::fault::Fault;
use crate::guard::callers::identify;
use crate::hub::Hub;
use crate::registry::Ending;
use crate::route::union::Union;
use crate::route::{Destination, Service, Way};
use crate::union::attachment::AttachmentUse;
use crate::union::dialog::{Admitted, Dialog};
use crate::upstream::{Carried, MAX_QUERY, Upstream};

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
        let caller = identify(&hub.callers, head)?;
        // Some clients have a URL that names the socket, and no place for a path.
        let is_bare = path == "/" && hub.guard.is_of_socket();
        let way = hub.routes.by_path(if is_bare { "/mcp" } else { path })?;
        let Way {
            to,
            service,
            is_common,
        } = way;
        to.permit(&hub.callers, &caller)
            .ok_or(Fault::NoSuchServer)?;
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

    /// The same request with what its messages are sent with. The rest is let go: headers are parts of the
    /// connection's read buffer, and would keep it as long as the answer takes.
    pub(crate) fn equip(self, mut admitted: Admitted) -> Admitted {
        match &mut admitted {
            Admitted::Session(exchange) => {
                exchange.carried = match self.to {
                    Destination::Server(_) => self.carried,
                    Destination::Union(_) => {
                        let server = exchange.in_use.session().upstream.config();
                        self.carried.for_server(&server)
                    }
                };
            }
            Admitted::Attachment(attached) => {
                attached.carried = self.carried;
                attached.carried.via = self.hub.pseudonym.after(&self.headers);
            }
        }
        admitted
    }

    /// What the request names, if its caller may use it now: its caller's, on the path of its server or union. Anything
    /// else gets the same refusal as what never existed.
    pub(crate) async fn find(&self) -> Result<Admitted, Fault> {
        let value = self
            .headers
            .get(mcp::SESSION_ID)
            .ok_or(Fault::SessionRequired)?;
        let id = SessionId::from_header(value).ok_or(Fault::UnknownSession)?;
        let found = match &self.to {
            Destination::Server(upstream) => match self.session(&id, upstream).await? {
                None if self.is_common => Box::pin(self.find_attachment(&id)).await?,
                found => found,
            },
            Destination::Union(union) => Box::pin(self.find_in_union(&id, union)).await?,
        };
        let found = found.ok_or(Fault::UnknownSession)?;
        let (unions, carried) = (&self.hub.unions, Carried::default());
        let admitted = unions.admit(found, &self.caller, carried, Leaving::GoesOn)?;
        self.check(&admitted)?;
        Ok(admitted)
    }

    /// Refuses what is too old, or in another revision than the request says.
    fn check(&self, found: &Admitted) -> Result<(), Fault> {
        if self.hub.registry.is_too_old(|| found.age()) {
            let unions = &self.hub.unions;
            unions.close(&found.dialog(), Ending::TooOld);
            return Err(Fault::UnknownSession);
        }
        let named = self.headers.get(mcp::PROTOCOL_VERSION);
        match named.map(|version| version.to_str()) {
            None => Ok(()),
            Some(Ok(named)) if version::is_supported(named) || found.is_of(named) => Ok(()),
            Some(_) => Err(Fault::ProtocolVersion),
        }
    }

    /// The session of this server with this id.
    async fn session(
        &self,
        id: &SessionId,
        upstream: &Arc<Upstream>,
    ) -> Result<Option<Dialog>, Fault> {
        let found = self.hub.registry.table.find(id, upstream).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        Ok(found.map(Dialog::Session))
    }

    /// An attachment of the union of this path, or a session from before there were several servers.
    async fn find_in_union(
        &self,
        id: &SessionId,
        union: &Arc<Union>,
    ) -> Result<Option<Dialog>, Fault> {
        if self.is_common && !self.may_be_known(id, union).await? {
            return Ok(None);
        }
        let attachment = self.attachment(id, union).await?;
        if attachment.is_some() || !self.is_common {
            return Ok(attachment);
        }
        for server in &union.now().servers {
            // A member is nobody's but its attachment's.
            if let Some(Dialog::Session(in_use)) = self.session(id, server).await?
                && !in_use.session().leg().generation.is_of_member()
            {
                return Ok(Some(Dialog::Session(in_use)));
            }
        }
        Ok(None)
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
    async fn find_attachment(&self, id: &SessionId) -> Result<Option<Dialog>, Fault> {
        match self.hub.routes.common_union() {
            Some(union) => self.attachment(id, &union).await,
            None => Ok(None),
        }
    }

    async fn attachment(
        &self,
        id: &SessionId,
        union: &Arc<Union>,
    ) -> Result<Option<Dialog>, Fault> {
        let found = self.hub.unions.find(id, union).await;
        let found = found.map_err(|error| Fault::store_failed(&error))?;
        let is_its = |in_use: &AttachmentUse| in_use.attachment().union.name == union.name;
        Ok(found.filter(is_its).map(Dialog::Attachment))
    }
}
