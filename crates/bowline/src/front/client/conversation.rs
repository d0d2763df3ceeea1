//! The client's session: opened by its `initialize`. If it ends, it is opened again for a client that cannot be
//! told to initialize again, and the conversation is over for any other.

use std::sync::Arc;
use std::time::Duration;

use bowline_system::clock;
use bowline_wire::compose;
use bowline_wire::message::{Message, RawId};
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::requests::{Cancel, Patience};
use super::{AfterEnd, Client, Incoming, listening};
use crate::exchange::Reply;
use crate::exchange::answer::Answer;
use crate::exchange::leaving::Leaving;
use crate::exchange::open::Opening;
use crate::fault::Fault;
use crate::registry::Ending;
use crate::route::Destination;
use crate::telemetry::SessionHash;
use crate::union::attachments::Attaching;
use crate::union::dialog::{Admitted, Dialog};
use crate::upstream::Carried;

/// What counts as a sleep of the machine. Clocks are also corrected in small steps.
const SHORTEST_SLEEP: Duration = Duration::from_secs(2);

/// The session of a client, and what it takes to open it again.
#[derive(Debug)]
pub(in crate::front) struct Conversation {
    phase: watch::Sender<Phase>,
    initialize: Mutex<Option<Message>>,
    /// Held while the session is opened again.
    reopening: tokio::sync::Mutex<()>,
    /// How far dates were ahead of timers when the last message came.
    ahead: Mutex<Duration>,
}

#[derive(Debug, Clone)]
enum Phase {
    /// There is no session.
    Closed,
    /// `initialize` is under way.
    Opening,
    /// The session, which stays in use for as long as the client is there.
    Open(Dialog),
}

// === impl Conversation ===

impl Default for Conversation {
    fn default() -> Self {
        Self {
            phase: watch::Sender::new(Phase::Closed),
            initialize: Mutex::default(),
            reopening: tokio::sync::Mutex::default(),
            ahead: Mutex::new(clock::ahead_of_timers()),
        }
    }
}

impl Conversation {
    /// Begins to open a session with this `initialize`. Returns the one before, if there is one.
    pub(super) fn begin_opening(&self, initialize: &Message) -> Option<Dialog> {
        *self.initialize.lock() = Some(initialize.clone());
        self.phase.send_replace(Phase::Opening).into_open()
    }

    /// Ends the conversation. Returns the session, if there is one.
    pub(in crate::front) fn close(&self) -> Option<Dialog> {
        self.phase.send_replace(Phase::Closed).into_open()
    }

    /// Waits until the client has sent `initialize`.
    pub(in crate::front) async fn begun(&self) {
        let mut phase = self.phase.subscribe();
        let begun = phase.wait_for(|phase| !matches!(phase, Phase::Closed));
        // The sender is `self`.
        drop(begun.await);
    }

    /// Whether this is the current session.
    pub(super) fn is_in(&self, dialog: &Dialog) -> bool {
        matches!(&*self.phase.borrow(), Phase::Open(current) if current == dialog)
    }

    /// The session as logs name it.
    pub(super) fn hash(&self) -> Option<SessionHash> {
        match &*self.phase.borrow() {
            Phase::Open(dialog) => Some(dialog.hash()),
            Phase::Closed | Phase::Opening => None,
        }
    }

    /// Does not use connections from before the machine slept: servers and routers have forgotten them, and
    /// the clock by which connections get old stood still.
    pub(in crate::front) fn notice_sleep(&self, client: &Client) {
        let now = clock::ahead_of_timers();
        let before = std::mem::replace(&mut *self.ahead.lock(), now);
        let slept = now.saturating_sub(before);
        if slept < SHORTEST_SLEEP {
            return;
        }
        tracing::info!(?slept, "the machine was asleep");
        client.to.drop_idle_connections();
        let current = self.phase.borrow().clone().into_open();
        if let Some(dialog) = current
            && let Ok(admitted) = client.admit(dialog, &Carried::default())
        {
            admitted.restart_streams();
        }
    }
}

impl Phase {
    fn into_open(self) -> Option<Dialog> {
        match self {
            Self::Open(dialog) => Some(dialog),
            Self::Closed | Self::Opening => None,
        }
    }
}

// === impl Client ===

impl Client {
    /// Opens the session in place of the one before, and answers the client.
    pub(super) async fn initialize(&self, incoming: Incoming, before: Option<Dialog>) {
        self.end_session(before);
        let Incoming {
            message,
            carried,
            place: _place,
        } = incoming;
        let id = message.id().unwrap_or_default().to_buf();
        let opening = self.open(message, &carried);
        let opened = self.left.run_until_cancelled(opening).await;
        let phase = &self.conversation.phase;
        match opened {
            None => drop(phase.send_replace(Phase::Closed)),
            Some(Err(fault)) => {
                phase.send_replace(Phase::Closed);
                self.refuse(&fault, Some(id.as_id())).await;
            }
            Some(Ok((reply, dialog))) => {
                let next = dialog.clone().map_or(Phase::Closed, Phase::Open);
                // Another `initialize` may have been faster.
                self.end_session(phase.send_replace(next).into_open());
                if self.left.is_cancelled() {
                    self.end_session(self.conversation.close());
                }
                let relaying = async {
                    match dialog {
                        // `initialize` is never cancelled.
                        Some(dialog) => {
                            let cancel = Cancel::default();
                            let admitted = self.admit(dialog, &Carried::default())?;
                            self.relay(id.as_id(), reply, &admitted, &cancel).await
                        }
                        None => self.decline(id.as_id(), reply).await.map(|()| None),
                    }
                };
                match self.left.run_until_cancelled(relaying).await {
                    None | Some(Ok(None)) => {}
                    Some(Ok(Some(error))) => self.outgoing.send(error.raw().clone()).await,
                    Some(Err(fault)) => self.refuse(&fault, Some(id.as_id())).await,
                }
            }
        }
    }

    /// Lets a message in at what the client has open, if the client may still use that.
    pub(super) fn admit(&self, dialog: Dialog, carried: &Carried) -> Result<Admitted, Fault> {
        let unions = &self.hub.unions;
        unions.admit(dialog, &self.caller, carried.clone(), Leaving::GoesOn)
    }

    /// The session, when it is open, for a message that is sent with this. If it has ended, another one is opened in
    /// its place, or the conversation is over.
    pub(super) async fn admitted(self: &Arc<Self>, carried: &Carried) -> Result<Admitted, Fault> {
        let mut phase = self.conversation.phase.subscribe();
        let phase = phase.wait_for(|phase| !matches!(phase, Phase::Opening));
        let open = phase.await.ok().and_then(|phase| phase.clone().into_open());
        let dialog = match open {
            None => return Err(Fault::NotInitialized),
            Some(dialog) if self.hub.unions.is_alive(&dialog) => dialog,
            Some(_) if self.after_end == AfterEnd::Reopen => Box::pin(self.reopen()).await?,
            Some(_) => {
                self.over.cancel();
                return Err(Fault::UnknownSession);
            }
        };
        let admitted = self.admit(dialog, carried);
        if admitted.is_err() && self.after_end == AfterEnd::Over {
            self.over.cancel();
        }
        admitted
    }

    /// Opens a session for the client in place of one that has ended, with the client's own `initialize`.
    async fn reopen(self: &Arc<Self>) -> Result<Dialog, Fault> {
        let _reopening = self.conversation.reopening.lock().await;
        let current = self.conversation.phase.borrow().clone();
        match current {
            Phase::Open(ended) if !self.hub.unions.is_alive(&ended) => {}
            Phase::Open(dialog) => return Ok(dialog),
            Phase::Closed | Phase::Opening => return Err(Fault::NotInitialized),
        }
        let initialize = self.conversation.initialize.lock().clone();
        let initialize = initialize.ok_or(Fault::NotInitialized)?;
        let id = initialize.id().unwrap_or_default().to_buf();
        let (reply, dialog) = self.open(initialize, &Carried::default()).await?;
        let Some(dialog) = dialog else {
            return Err(Fault::UnknownSession);
        };
        let mut answer = Answer::of(id.as_id(), reply, &self.large);
        while let Ok(Some(_)) = answer.next().await {}
        let initialized = compose::bare_notification("notifications/initialized");
        if let Ok(initialized) = Message::parse(initialized.into()) {
            let admitted = self.admit(dialog.clone(), &Carried::default())?;
            admitted.handle(initialized).await?;
        }
        tracing::warn!(session = %dialog.hash(), "the session had ended; another one was opened");
        dialog.all_changed();
        let phase = &self.conversation.phase;
        phase.send_if_modified(|phase| {
            let is_current = matches!(phase, Phase::Open(_));
            if is_current {
                *phase = Phase::Open(dialog.clone());
            }
            is_current
        });
        listening::start(self, dialog.clone(), Carried::default());
        Ok(dialog)
    }

    /// Opens a session, and waits for a server that cannot be reached.
    async fn open(
        &self,
        message: Message,
        carried: &Carried,
    ) -> Result<(Reply, Option<Dialog>), Fault> {
        let patience = Patience::begin(&self.to);
        let mut carried = carried.clone();
        if carried.via.is_none() {
            carried.via = self.hub.pseudonym.after(&HeaderMap::new());
        }
        loop {
            match self.open_once(message.clone(), carried.clone()).await {
                Err(fault) if patience.allows(&fault) => {
                    tracing::info!(%fault, "no session yet");
                    patience.wait().await;
                }
                opened => return opened,
            }
        }
    }

    async fn open_once(
        &self,
        message: Message,
        carried: Carried,
    ) -> Result<(Reply, Option<Dialog>), Fault> {
        let caller = self.caller.clone();
        let upstream = match &self.to {
            Destination::Server(upstream) => Arc::clone(upstream),
            Destination::Union(union) => {
                let attaching = Attaching {
                    unions: Arc::clone(&self.hub.unions),
                    union: Arc::clone(union),
                    caller,
                    carried,
                    message,
                    leaving: Leaving::GoesOn,
                };
                let (reply, attached) = attaching.open().await?;
                return Ok((reply, Some(Dialog::Attachment(attached.in_use))));
            }
        };
        let opening = Opening {
            registry: Arc::clone(&self.hub.registry),
            upstream,
            caller,
            carried,
            message,
            leaving: Leaving::GoesOn,
            member: None,
        };
        let (reply, newborn) = opening.open().await?;
        let dialog = newborn.map(|newborn| {
            let in_use = newborn.session.begin_use();
            newborn.announce();
            Dialog::Session(in_use)
        });
        Ok((reply, dialog))
    }

    /// Passes on the answer of a server that opened no session.
    async fn decline(&self, id: RawId<'_>, reply: Reply) -> Result<(), Fault> {
        let mut answer = Answer::of(id, reply, &self.large);
        loop {
            match answer.next().await {
                Ok(Some(message)) => self.outgoing.send(message.raw().clone()).await,
                Ok(None) => return Ok(()),
                Err(_) if answer.is_answered() => return Ok(()),
                Err(error) => {
                    return Err(Fault::Upstream {
                        server: self.to.name().clone(),
                        generation: 0,
                        error,
                    });
                }
            }
        }
    }

    /// Ends a session here and at its server.
    pub(in crate::front) fn end_session(&self, dialog: Option<Dialog>) {
        if let Some(dialog) = dialog {
            let unions = &self.hub.unions;
            unions.close(&dialog, Ending::Deleted);
        }
    }
}
