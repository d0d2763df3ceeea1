//! A request of the client, in a task of its own: sent, retried for as long as nothing was sent, and answered
//! message by message.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::message::{Message, RawId, RawIdBuf};
use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Client, Incoming};
use crate::config::Target;
use crate::exchange::Reply;
use crate::exchange::answer::{Answer, Messages};
use crate::exchange::outlet::Outlet;
use crate::fault::{Fault, Reason};
use crate::route::Destination;
use crate::union::dialog::Admitted;
use crate::upstream::{Carried, StreamError, UpstreamError};

/// How long a request waits for a server that cannot be reached, if it has no `call_timeout`. Most clients give
/// up earlier, and cancel.
const PATIENCE: Duration = Duration::from_secs(5 * 60);
/// The same for the gateway itself, where there are several servers, and for the rest of an answer of one.
const UNION_PATIENCE: Duration = Duration::from_secs(30);
/// The delay before a request that was not sent is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The requests under way, so that the client can cancel them.
#[derive(Debug, Default)]
pub(super) struct Requests(Mutex<Vec<(RawIdBuf, Cancel)>>);

/// What becomes of a request that the client cancels.
#[derive(Debug, Clone, Default)]
pub(super) struct Cancel {
    /// The client hears nothing more of it, and nothing more is sent for it.
    cancelled: CancellationToken,
    /// The cancel went where the request is, which was found by it. Only now may the request be dropped.
    delivered: CancellationToken,
}

// === impl Requests ===

impl Requests {
    /// Adds a request.
    pub(super) fn begin(&self, request: &Message) -> Cancel {
        let cancel = Cancel::default();
        let id = request.id().unwrap_or_default().to_buf();
        self.0.lock().push((id, cancel.clone()));
        cancel
    }

    /// Cancels the requests that this message cancels. What is returned is for when it was delivered.
    pub(super) fn cancel(&self, message: &Message) -> Vec<Cancel> {
        let Some(span) = message.cancelled_request() else {
            return Vec::new();
        };
        let id = RawId::new(message.text(span));
        let requests = self.0.lock();
        let its = requests.iter().filter(|(its_id, _)| its_id.as_id() == id);
        its.map(|(_, cancel)| cancel.clone())
            .inspect(|cancel| cancel.cancelled.cancel())
            .collect()
    }

    fn end(&self, request: &Cancel) {
        request.delivered.cancel();
        let mut requests = self.0.lock();
        requests.retain(|(_, cancel)| !cancel.delivered.is_cancelled());
    }
}

// === impl Cancel ===

impl Cancel {
    /// The cancel was delivered, or nobody takes it.
    pub(super) fn delivered(&self) {
        self.delivered.cancel();
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }
}

// === impl Client ===

impl Client {
    /// Sends a request and passes its answer on. A request that was cancelled gets no answer.
    pub(super) async fn request(self: &Arc<Self>, incoming: Incoming, cancel: Cancel) {
        let Incoming {
            message,
            carried,
            place: _place,
        } = incoming;
        let id = message.id().unwrap_or_default().to_buf();
        let answered = tokio::select! {
            biased;
            () = cancel.delivered.cancelled() => Ok(()),
            () = self.left.cancelled() => Ok(()),
            answered = self.answer(id.as_id(), message, &carried, &cancel) => answered,
        };
        self.requests.end(&cancel);
        match answered {
            Ok(()) => {}
            Err(fault) if cancel.is_cancelled() || fault.row().reason == Reason::Cancelled => {
                self.log(&fault);
            }
            Err(fault) => self.refuse(&fault, Some(id.as_id())).await,
        }
    }

    async fn answer(
        self: &Arc<Self>,
        id: RawId<'_>,
        message: Message,
        carried: &Carried,
        cancel: &Cancel,
    ) -> Result<(), Fault> {
        let patience = Patience::begin(&self.to);
        loop {
            let admitted = self.admitted(carried);
            let Some(admitted) = cancel.cancelled.run_until_cancelled(admitted).await else {
                return Ok(());
            };
            let admitted = admitted?;
            match admitted.clone().handle(message.clone()).await {
                Ok(reply) => match self.relay(id, reply, &admitted, cancel).await? {
                    None => return Ok(()),
                    Some(error) if !patience.waits_for_server() => {
                        self.pass_on(&error, cancel).await;
                        return Ok(());
                    }
                    Some(_) => {}
                },
                Err(fault) if patience.allows(&fault) => {}
                Err(fault) => return Err(fault),
            }
            let waiting = cancel.cancelled.run_until_cancelled(patience.wait());
            if waiting.await.is_none() {
                return Ok(());
            }
        }
    }

    /// Sends the client what answers a request, unless it has cancelled that.
    async fn pass_on(&self, message: &Message, cancel: &Cancel) {
        self.unasked.passed_on().await;
        if !cancel.is_cancelled() {
            self.outgoing.send(message.raw().clone()).await;
        }
    }

    /// Passes on the messages of a reply. A server may end its stream before the answer and have the client
    /// ask for the rest. An error that a later attempt may not meet is returned instead.
    pub(super) async fn relay(
        &self,
        id: RawId<'_>,
        reply: Reply,
        admitted: &Admitted,
        cancel: &Cancel,
    ) -> Result<Option<Message>, Fault> {
        let mut answer = Answer::of(id, reply, &self.large);
        let mut patience = Patience::for_rest(&self.to);
        loop {
            let error = match self.outgoing.paced(answer.next()).await {
                Ok(Some(error)) if answer.is_for_now() => return Ok(Some(error)),
                Ok(Some(message)) => {
                    self.pass_on(&message, cancel).await;
                    #[cfg(feature = "planted")]
                    if crate::planted::has(crate::planted::Bug::SseAnswerTwice) {
                        self.outgoing.send(message.raw().clone()).await;
                    }
                    patience = Patience::for_rest(&self.to);
                    continue;
                }
                Ok(None) => return Ok(None),
                // A second answer to one request would be worse than a fault that is not reported.
                Err(_) if answer.is_answered() => return Ok(None),
                Err(error) => error,
            };
            let rest = match (&error, answer.resumable()) {
                (UpstreamError::Stream(StreamError::NoAnswer), Some(rest))
                    if !patience.is_over() =>
                {
                    rest.clone()
                }
                _ => return Err(admitted.failed(error)),
            };
            tokio::time::sleep(rest.retry.unwrap_or(PAUSE)).await;
            let last = rest.last_event_id.unwrap_or_default();
            match self.rest_of(admitted, &last, &patience).await {
                Ok(rest) => answer.resume(rest),
                // The request was sent, whatever this says about the stream.
                Err(fault) => {
                    let error = UpstreamError::OutcomeUnknown(fault.to_string().into());
                    return Err(admitted.failed(error));
                }
            }
        }
    }

    /// The stream on which the rest of an answer comes.
    async fn rest_of(
        &self,
        asked: &Admitted,
        last: &[u8],
        patience: &Patience,
    ) -> Result<Outlet, Fault> {
        loop {
            let admitted = self.admit(asked.dialog(), asked.carried())?;
            match admitted.listen(Some(last)).await {
                Err(fault) if patience.allows(&fault) => patience.wait().await,
                heard => return heard,
            }
        }
    }

    /// Sends the members of a batch, and passes their answers on.
    pub(super) async fn answer_batch(self: &Arc<Self>, array: &Bytes, carried: &Carried) {
        let answering = async {
            let admitted = self.admitted(carried).await?;
            match admitted.handle_batch(array).await? {
                Reply::Message { body, .. } => self.outgoing.send(body).await,
                reply => {
                    let mut messages = Messages::of(reply, &self.large);
                    while let Ok(Some(message)) = self.outgoing.paced(messages.next()).await {
                        self.outgoing.send(message.raw().clone()).await;
                    }
                }
            }
            Ok(())
        };
        let answered: Option<Result<(), Fault>> = self.left.run_until_cancelled(answering).await;
        if let Some(Err(fault)) = answered {
            self.refuse(&fault, None).await;
        }
    }
}

/// How long a message is retried that was not sent, or the rest of its answer is asked for.
///
/// A client that has one server can do nothing without it, and waits for it. One that has several goes on with the
/// others, and its model is told what is missing, so nothing that was not sent waits for a member.
#[derive(Debug)]
pub(super) struct Patience {
    until: Instant,
    /// Whether a server's trouble is waited out.
    waits_for_server: bool,
}

impl Patience {
    /// For a message that was not sent: `call_timeout` if there is one. A command on this machine does not come
    /// back by waiting: what it needs to start is in the recovery budget.
    pub(super) fn begin(to: &Destination) -> Self {
        let (patience, waits_for_server) = match to {
            Destination::Server(upstream) => {
                let server = upstream.config();
                let patience = match server.target {
                    Target::Command(_) => Duration::ZERO,
                    Target::Url(_) | Target::Endpoints(_) => {
                        server.call_timeout.unwrap_or(PATIENCE)
                    }
                };
                (patience, true)
            }
            Destination::Union(_) => (UNION_PATIENCE, false),
        };
        Self {
            until: Instant::now() + patience,
            waits_for_server,
        }
    }

    /// For the rest of an answer: the request was sent, and its outcome would be unknown.
    fn for_rest(to: &Destination) -> Self {
        Self {
            waits_for_server: true,
            ..Self::begin(to)
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether a later attempt may be made because of a server's trouble.
    fn waits_for_server(&self) -> bool {
        self.waits_for_server && !self.is_over()
    }

    /// Whether the fault says that a retry may help, which it says only if nothing was sent or everything may
    /// be repeated.
    pub(super) fn allows(&self, fault: &Fault) -> bool {
        let may_wait = match fault {
            Fault::Upstream { .. } => self.waits_for_server(),
            _ => !self.is_over(),
        };
        may_wait && fault.row().retry.seconds().is_some()
    }

    pub(super) async fn wait(&self) {
        tokio::time::sleep(PAUSE).await;
    }
}
