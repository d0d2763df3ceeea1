//! What comes from a process for one reader.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_wire::message::Message;
use bytes::Bytes;

use super::error::ProcessError;
use super::inbox::{Beginning, Inbox, Over};
use super::routing::Routing;
use crate::upstream::event_source::EventSource;
use crate::upstream::{Outcome, SentAs, StreamError, UpstreamError, Whole};

/// What comes from a process for one reader. Dropping it leaves what the server waits for to another.
#[derive(Debug)]
pub(crate) struct Incoming {
    routing: Arc<Routing>,
    inbox: Arc<Inbox>,
}

impl Incoming {
    pub(super) fn new(routing: &Arc<Routing>, inbox: Arc<Inbox>) -> Self {
        Self {
            routing: Arc::clone(routing),
            inbox,
        }
    }

    /// Puts in what came before there was a reader.
    pub(super) async fn show(&self, message: &Message) {
        self.inbox.put(message).await;
    }

    /// The answer, where nothing else comes.
    pub(super) async fn answer(self) -> Result<Bytes, ProcessError> {
        match self.inbox.begin().await {
            Beginning::Answer(answer) => Ok(answer),
            Beginning::Over(Over::Ended(end)) => Err(ProcessError::Ended {
                end,
                was_written: true,
            }),
            Beginning::Over(Over::Unreadable) => Err(ProcessError::Unreadable),
            Beginning::Other | Beginning::Over(_) => Err(ProcessError::NotRead),
        }
    }

    /// What answers a request: one message if that comes first, otherwise a stream.
    pub(super) async fn outcome(self) -> Result<Outcome, UpstreamError> {
        match self.inbox.begin().await {
            Beginning::Answer(body) => Ok(Outcome::Message(Whole {
                body,
                sent_as: SentAs::own(),
                may_deny_session: false,
            })),
            Beginning::Other => Ok(Outcome::Events(EventSource::Process(self))),
            Beginning::Over(Over::Ended(end)) => Err(ProcessError::Ended {
                end,
                was_written: true,
            }
            .into()),
            Beginning::Over(Over::Unreadable) => Err(ProcessError::Unreadable.into()),
            Beginning::Over(Over::Cancelled | Over::Closed | Over::Answered) => {
                Err(UpstreamError::Cancelled)
            }
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
            Err(Over::Unreadable) => Some(Err(StreamError::Unreadable)),
            Err(Over::Ended(end)) => Some(Err(StreamError::ProcessEnded(end))),
        })
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.routing.leave(&self.inbox);
    }
}
