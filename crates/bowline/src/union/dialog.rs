//! What a client has open with this gateway: a session with one server, or an attachment to several. Fronts use
//! both in the same way.

use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bytes::Bytes;

use super::Attached;
use crate::exchange::Exchange;
use crate::exchange::batch::{self, TakesMessages as _};
use crate::exchange::reply::Reply;
use crate::exchange::stream::outlet::Outlet;
use crate::fault::Fault;
use crate::leg::marks::StreamOrigin;
use crate::registry::Ending;
use crate::telemetry::SessionHash;
use crate::upstream::{Carried, UpstreamError};

/// What a client has open.
#[derive(Debug, Clone)]
pub(crate) enum Dialog {
    Session(Exchange),
    Attachment(Attached),
}

// === impl Dialog ===

impl Dialog {
    /// Takes one message and returns the reply.
    pub(crate) async fn handle(self, message: Message) -> Result<Reply, Fault> {
        match self {
            Self::Session(exchange) => exchange.handle(message).await,
            Self::Attachment(attached) => Box::pin(attached.handle(message)).await,
        }
    }

    /// Takes a JSON array of messages.
    pub(crate) async fn handle_batch(self, array: &Bytes) -> Result<Reply, Fault> {
        match self {
            Self::Session(exchange) => batch::handle(exchange, array).await,
            Self::Attachment(attached) => batch::handle(attached, array).await,
        }
    }

    /// Opens a stream to the client, after the event `last` if there is one.
    pub(crate) async fn listen(self, last: Option<&[u8]>) -> Result<Outlet, Fault> {
        match self {
            Self::Session(exchange) => exchange.listen(last).await,
            Self::Attachment(attached) => attached.listen(last).await,
        }
    }

    /// Ends it for its client, at all gateways. `false`: it had already ended.
    pub(crate) async fn delete(self) -> Result<bool, Fault> {
        let deleted = match &self {
            Self::Session(exchange) => {
                let session = exchange.in_use.session();
                let registry = &exchange.registry;
                registry
                    .delete_session(&exchange.id, session, &exchange.carried)
                    .await
            }
            Self::Attachment(attached) => {
                let unions = &attached.unions;
                unions.end(attached.attachment(), Ending::Deleted).await
            }
        };
        deleted.map_err(|error| Fault::store_failed(&error))
    }

    /// Ends it, without waiting for the store.
    pub(crate) fn end(&self, ending: Ending) {
        match self {
            Self::Session(exchange) => {
                let registry = &exchange.registry;
                registry.end_session(&exchange.id, ending, &exchange.carried);
            }
            Self::Attachment(attached) => {
                let unions = &attached.unions;
                unions.end_later(attached.attachment(), ending);
            }
        }
    }

    pub(crate) fn id(&self) -> &SessionId {
        match self {
            Self::Session(exchange) => &exchange.id,
            Self::Attachment(attached) => &attached.attachment().id,
        }
    }

    /// As logs name it.
    pub(crate) fn hash(&self) -> SessionHash {
        match self {
            Self::Session(exchange) => exchange.in_use.session().hash,
            Self::Attachment(attached) => attached.attachment().hash,
        }
    }

    /// Whether it has not ended, as far as this gateway knows.
    pub(crate) fn is_alive(&self) -> bool {
        match self {
            Self::Session(exchange) => exchange.registry.table.cached(&exchange.id).is_some(),
            Self::Attachment(attached) => {
                let attachments = &attached.unions.attachments;
                attachments.cached(&attached.attachment().id).is_some()
            }
        }
    }

    /// Whether its caller is still configured.
    pub(crate) fn is_callers(&self) -> bool {
        match self {
            Self::Session(exchange) => exchange.in_use.session().is_callers(),
            Self::Attachment(attached) => {
                let identities = &attached.unions.flows.identities;
                identities.knows(&attached.attachment().caller)
            }
        }
    }

    /// Whether something else uses it as well.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Session(exchange) => exchange.in_use.is_shared(),
            Self::Attachment(attached) => attached.in_use.is_shared(),
        }
    }

    /// The fault for an error that a front met in a reply.
    pub(crate) fn failed(&self, error: UpstreamError) -> Fault {
        match self {
            Self::Session(exchange) => exchange.failed(error),
            Self::Attachment(attached) => attached.failed(error),
        }
    }

    /// The same, with what came with another message.
    pub(crate) fn carrying(mut self, with: &Carried) -> Self {
        let (Self::Session(Exchange { carried, .. }) | Self::Attachment(Attached { carried, .. })) =
            &mut self;
        carried.clone_from(with);
        self
    }

    /// Opens the streams of servers again: the connections of before are of no use.
    pub(crate) fn restart_streams(&self) {
        let restart = |exchange: &Exchange| {
            let session = exchange.in_use.session();
            let listening = session.streams.lock().find(&StreamOrigin::Standalone);
            if let Some(stream) = listening {
                stream.restart();
            }
        };
        match self {
            Self::Session(exchange) => restart(exchange),
            Self::Attachment(attached) => {
                let attached = attached.clone();
                let tracker = attached.unions.registry.tracker.clone();
                tracker.spawn(async move { attached.members().await.iter().for_each(restart) });
            }
        }
    }

    /// Everything may have changed that the client was told: its session is another one now.
    pub(crate) fn all_changed(&self) {
        match self {
            Self::Session(exchange) => exchange.in_use.session().client_state.lists_changed(),
            Self::Attachment(attached) => attached.attachment().listening.all_changed(),
        }
    }
}

impl From<Exchange> for Dialog {
    fn from(exchange: Exchange) -> Self {
        Self::Session(exchange)
    }
}

impl From<Attached> for Dialog {
    fn from(attached: Attached) -> Self {
        Self::Attachment(attached)
    }
}

impl PartialEq for Dialog {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}
