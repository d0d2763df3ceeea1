//! What a client has open with this gateway: a session with one server, or an attachment to several. Fronts use
//! both in the same way.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bytes::Bytes;

use super::attachment::AttachmentUse;
use super::{Attached, Unions};
use crate::caller::Caller;
use crate::exchange::Exchange;
use crate::exchange::Reply;
use crate::exchange::batch;
use crate::exchange::batch::TakesMessages as _;
use crate::exchange::leaving::Leaving;
use crate::exchange::outlet::Outlet;
use crate::fault::Fault;
use crate::leg::marks::StreamOrigin;
use crate::registry::Ending;
use crate::session::InUse;
use crate::telemetry::SessionHash;
use crate::upstream::{Carried, UpstreamError};

/// What a client has open, for as long as a front keeps it. Nothing is asked of it but by a request that is let in.
#[derive(Debug, Clone)]
pub(crate) enum Dialog {
    Session(InUse),
    Attachment(AttachmentUse),
}

/// A request of what a client has open, whose caller may use that now.
#[derive(Debug, Clone)]
pub(crate) enum Admitted {
    Session(Exchange),
    Attachment(Attached),
}

// === impl Unions ===

impl Unions {
    /// Lets a caller's request at what it has open. What is not its, or no more, is unknown to it.
    pub(crate) fn admit(
        self: &Arc<Self>,
        dialog: Dialog,
        caller: &Caller,
        carried: Carried,
        leaving: Leaving,
    ) -> Result<Admitted, Fault> {
        match dialog {
            Dialog::Session(in_use) => {
                let exchange = Exchange::new(&self.registry, in_use, caller, carried, leaving);
                exchange.map(Admitted::Session)
            }
            Dialog::Attachment(in_use) => {
                let attached = Attached::new(self, in_use, caller, carried, leaving);
                attached.map(Admitted::Attachment)
            }
        }
    }

    /// Ends what a client has open, without waiting for the store.
    pub(crate) fn close(self: &Arc<Self>, dialog: &Dialog, ending: Ending) {
        match dialog {
            Dialog::Session(in_use) => {
                let id = &in_use.session().id;
                self.registry.end_session(id, ending, &Carried::default());
            }
            Dialog::Attachment(in_use) => self.end_later(in_use.attachment(), ending),
        }
    }

    /// Whether what a client has open has not ended, as far as this gateway knows.
    pub(crate) fn is_alive(&self, dialog: &Dialog) -> bool {
        match dialog {
            Dialog::Session(in_use) => self.registry.table.has_cached(&in_use.session().id),
            Dialog::Attachment(in_use) => self.has_cached(&in_use.attachment().id),
        }
    }
}

// === impl Dialog ===

impl Dialog {
    pub(crate) fn id(&self) -> &SessionId {
        match self {
            Self::Session(in_use) => &in_use.session().id,
            Self::Attachment(in_use) => &in_use.attachment().id,
        }
    }

    /// As logs name it.
    pub(crate) fn hash(&self) -> SessionHash {
        match self {
            Self::Session(in_use) => in_use.session().hash,
            Self::Attachment(in_use) => in_use.attachment().hash,
        }
    }

    /// Whether something else uses it as well.
    pub(crate) fn is_shared(&self) -> bool {
        match self {
            Self::Session(in_use) => in_use.is_shared(),
            Self::Attachment(in_use) => in_use.is_shared(),
        }
    }

    /// Everything may have changed that the client was told: its session is another one now.
    pub(crate) fn all_changed(&self) {
        match self {
            Self::Session(in_use) => in_use.session().client_state.lists_changed(),
            Self::Attachment(in_use) => in_use.attachment().listening.all_changed(),
        }
    }
}

impl PartialEq for Dialog {
    fn eq(&self, other: &Self) -> bool {
        self.id() == other.id()
    }
}

// === impl Admitted ===

impl Admitted {
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

    /// What the client has open.
    pub(crate) fn dialog(&self) -> Dialog {
        match self {
            Self::Session(exchange) => Dialog::Session(exchange.in_use.clone()),
            Self::Attachment(attached) => Dialog::Attachment(attached.in_use.clone()),
        }
    }

    /// The time since what the client has was opened.
    pub(crate) fn age(&self) -> Duration {
        match self {
            Self::Session(exchange) => exchange.in_use.session().age(),
            Self::Attachment(attached) => attached.attachment().age(),
        }
    }

    /// Whether the client speaks this revision there.
    pub(crate) fn is_of(&self, version: &str) -> bool {
        match self {
            Self::Session(exchange) => exchange.in_use.session().leg().version() == version,
            Self::Attachment(attached) => attached.attachment().version.as_str() == version,
        }
    }

    /// What its messages are sent with.
    pub(crate) fn carried(&self) -> &Carried {
        match self {
            Self::Session(exchange) => &exchange.carried,
            Self::Attachment(attached) => &attached.carried,
        }
    }

    /// The fault for an error that a front met in a reply.
    pub(crate) fn failed(&self, error: UpstreamError) -> Fault {
        match self {
            Self::Session(exchange) => exchange.failed(error),
            Self::Attachment(attached) => attached.failed(error),
        }
    }

    /// Opens the streams of servers again: the connections of before are of no use.
    pub(crate) fn restart_streams(self) {
        let restart = |exchange: &Exchange| {
            let session = exchange.in_use.session();
            let listening = session.streams.lock().find(&StreamOrigin::Standalone);
            if let Some(stream) = listening {
                stream.restart();
            }
        };
        match self {
            Self::Session(exchange) => restart(&exchange),
            Self::Attachment(attached) => {
                let tracker = attached.unions.registry.tracker.clone();
                tracker.spawn(async move { attached.members().await.iter().for_each(restart) });
            }
        }
    }
}
