//! A client that gets everything as one sequence of messages: on stdio, or on the stream of HTTP+SSE.
//!
//! Every request runs in a task of its own. Notifications and responses are delivered in the order in which
//! they came, and no request overtakes `notifications/initialized`. Such a client cannot be asked to retry
//! later, so requests wait and are retried here wherever nothing was sent. How messages come in, and what the
//! client's leaving means, is for the front that has it.

mod conversation;
mod listening;
pub(super) mod notices;
pub(super) mod outgoing;
mod requests;
mod unasked;

use std::sync::Arc;

use bowline_wire::message::{Kind, Message, RawId};
use bowline_wire::skip::MAX_MESSAGE;
use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::conversation::Conversation;
use self::notices::Notices;
pub(super) use self::outgoing::Outgoing;
use self::requests::Requests;
use self::unasked::Unasked;
use crate::caller::Caller;
use crate::exchange::answer::LargeAnswers;
use crate::fault::{Fault, LogContext};
use crate::hub::Hub;
use crate::mailboxes::room::RoomPermit;
use crate::route::Destination;
use crate::upstream::Carried;

/// What all tasks of one client share.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) hub: Arc<Hub>,
    /// What it talks to.
    pub(super) to: Destination,
    pub(super) caller: Caller,
    /// What happens if the session ends while the client is there.
    after_end: AfterEnd,
    pub(super) conversation: Conversation,
    requests: Requests,
    unasked: Unasked,
    pub(super) outgoing: Outgoing,
    large: LargeAnswers,
    /// Requests.
    pub(super) running: TaskTracker,
    /// What delivers notifications and responses.
    pub(super) delivering: TaskTracker,
    /// The client does not read any more, or its time is over.
    pub(super) left: CancellationToken,
    /// The conversation cannot go on, and the client has to be told so.
    pub(super) over: CancellationToken,
}

/// What happens if the session of a client ends while the client is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterEnd {
    /// Another one is opened, because the client cannot be told to initialize again.
    Reopen,
    /// The conversation is over: the client opens another one.
    Over,
}

/// A message of the client, and what came with it.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) message: Message,
    pub(super) carried: Carried,
    /// Held until it is answered or delivered.
    pub(super) place: RoomPermit,
}

// === impl Client ===

impl Client {
    pub(super) fn new(
        hub: Arc<Hub>,
        to: Destination,
        caller: Caller,
        after_end: AfterEnd,
        outgoing: Outgoing,
        left: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            conversation: Conversation::default(),
            requests: Requests::default(),
            unasked: Unasked::default(),
            // Held in memory, because what was written cannot be taken back if the answer breaks.
            large: LargeAnswers::up_to(MAX_MESSAGE),
            running: TaskTracker::new(),
            delivering: TaskTracker::new(),
            over: CancellationToken::new(),
            hub,
            to,
            caller,
            after_end,
            outgoing,
            left,
        })
    }

    /// Takes one message of the client.
    pub(super) async fn take(self: &Arc<Self>, incoming: Incoming, notices: &mut Notices) {
        let message = &incoming.message;
        match message.kind() {
            Kind::Request if message.method() == Some("initialize") => {
                // Before the next message is taken, so that what follows waits for the session.
                let old = self.conversation.begin_opening(message);
                let client = Arc::clone(self);
                self.running.spawn(async move {
                    client.initialize(incoming, old).await;
                });
            }
            Kind::Request => {
                let (turn, cancel) = (notices.turn(), self.requests.begin(message));
                let client = Arc::clone(self);
                self.running.spawn(async move {
                    turn.wait().await;
                    client.request(incoming, cancel).await;
                });
            }
            Kind::Notification | Kind::Response => {
                let cancels = self.requests.cancel(message);
                notices.add(incoming, cancels).await;
            }
        }
    }

    /// Takes a JSON array of messages, which only sessions of revision 2025-03-26 have.
    pub(super) fn take_batch(
        self: &Arc<Self>,
        array: Bytes,
        carried: Carried,
        place: RoomPermit,
        notices: &Notices,
    ) {
        let (client, turn) = (Arc::clone(self), notices.turn());
        self.running.spawn(async move {
            turn.wait().await;
            client.answer_batch(&array, &carried).await;
            drop(place);
        });
    }

    /// Sends a fault to the client as the answer to a request with this id.
    pub(super) async fn refuse(&self, fault: &Fault, id: Option<RawId<'_>>) {
        self.log(fault);
        let body = fault
            .said(id)
            .unwrap_or_else(|| fault.body(Some(id.unwrap_or(RawId::NULL))).into());
        self.outgoing.send(body).await;
    }

    /// Counts a fault and logs it.
    fn log(&self, fault: &Fault) {
        self.hub.metrics.refused(fault.row().name);
        fault.log(&LogContext {
            server: Some(self.to.name()),
            session: self.conversation.hash(),
            status: None,
        });
    }

    /// Waits until every request is answered and every notification delivered. Nothing may come in any more.
    pub(super) async fn settled(&self) {
        for tasks in [&self.running, &self.delivering] {
            tasks.close();
            tasks.wait().await;
        }
    }
}
