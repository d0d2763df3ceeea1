//! What comes from a live channel for one reader.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_wire::message::Message;
use bytes::Bytes;

use super::inbox::{Beginning, Inbox, Over};
use super::routing::Routing;
use crate::upstream::policy::OWN_LIST;
use crate::upstream::transports::error::{LiveError, StreamError};

/// What comes from a live channel for one reader. Dropping it leaves what the server waits for to another.
#[derive(Debug)]
pub(crate) struct Incoming {
    routing: Arc<Routing>,
    inbox: Arc<Inbox>,
}

/// The reader of one call, for what learns late that the call has failed.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct Recipient(Arc<Inbox>);

impl Recipient {
    /// The server did not take the request. Nothing changes if the call has its answer.
    pub(in crate::upstream) fn not_taken(&self, why: &str) {
        self.0.finish(Over::NotTaken(why.into()));
    }
}

impl Incoming {
    /// A call that was not sent yet. Nothing but its answer comes in, unless it is a client's.
    pub(in crate::upstream) fn of_call(
        routing: &Arc<Routing>,
        request: &Message,
        is_clients: bool,
    ) -> Result<Self, LiveError> {
        let inbox = routing.call(request, is_clients)?;
        Ok(Self::new(routing, inbox))
    }

    /// A request that passes through. A client's also gets the questions that wait for somebody who can show them;
    /// after the call is known, so that what waits for a stream has one.
    pub(in crate::upstream) async fn of_request(
        routing: &Arc<Routing>,
        request: &Message,
    ) -> Result<Self, LiveError> {
        let is_clients = !is_own_list(request);
        let incoming = Self::of_call(routing, request, is_clients)?;
        if is_clients {
            for question in routing.unasked() {
                incoming.inbox.put(&question).await;
            }
        }
        Ok(incoming)
    }

    /// What the server says unasked, from what waited for it on.
    pub(in crate::upstream) async fn of_listener(
        routing: &Arc<Routing>,
    ) -> Result<Self, LiveError> {
        let (inbox, held) = routing.listen()?;
        let incoming = Self::new(routing, inbox);
        for message in held {
            incoming.inbox.put(&message).await;
        }
        Ok(incoming)
    }

    fn new(routing: &Arc<Routing>, inbox: Arc<Inbox>) -> Self {
        Self {
            routing: Arc::clone(routing),
            inbox,
        }
    }

    pub(in crate::upstream) fn recipient(&self) -> Recipient {
        Recipient(Arc::clone(&self.inbox))
    }

    /// Whether the channel ended before anything came in.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        self.inbox.has_ended()
    }

    /// Waits until something has come in, or nothing will.
    pub(in crate::upstream) async fn begun(&self) {
        self.inbox.begun().await;
    }

    /// Waits until the answer has come in, or none will.
    pub(in crate::upstream) async fn finished(&self) {
        self.inbox.finished().await;
    }

    /// Whether anything has come in.
    pub(in crate::upstream) fn has_begun(&self) -> bool {
        self.inbox.has_messages()
    }

    /// Waits for what comes first.
    pub(in crate::upstream) async fn begin(&self) -> Beginning {
        self.inbox.begin().await
    }

    /// The answer, where nothing else comes.
    pub(in crate::upstream) async fn answer(self) -> Result<Bytes, LiveError> {
        match self.inbox.begin().await {
            Beginning::Answer(answer) => Ok(answer),
            Beginning::Over(Over::Ended(end)) => Err(LiveError::Ended {
                end,
                was_written: true,
            }),
            Beginning::Over(Over::Unreadable | Over::TooLarge) => Err(LiveError::Unreadable),
            Beginning::Other | Beginning::Over(_) => Err(LiveError::NotRead),
        }
    }

    /// The next message.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        Poll::Ready(match ready!(self.inbox.poll_next(cx)) {
            Ok(message) => Some(Ok(message)),
            Err(Over::Answered | Over::Closed) => None,
            Err(Over::Cancelled) => Some(Err(StreamError::Cancelled)),
            Err(Over::NotTaken(why)) => Some(Err(StreamError::NotTaken(why))),
            Err(Over::Unreadable) => Some(Err(StreamError::Unreadable)),
            Err(Over::TooLarge) => Some(Err(StreamError::TooLarge)),
            Err(Over::Ended(end)) => Some(Err(StreamError::Ended(end))),
        })
    }
}

/// Whether a request is Bowline's own list of tools, of this gateway or another: nobody would see what else comes.
fn is_own_list(request: &Message) -> bool {
    let id = request.id().unwrap_or_default();
    let purpose = id.as_str().strip_prefix("\"bowline-");
    purpose.is_some_and(|purpose| purpose.starts_with(OWN_LIST))
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.routing.leave(&self.inbox);
    }
}
