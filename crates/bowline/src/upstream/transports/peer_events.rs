//! A stream of a leg that lives in another gateway.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::error::{ForwardError, StreamError};
use crate::peers::{Answer, Ending, PeerError, Record};

/// Events that another gateway passes on.
#[derive(Debug)]
pub(crate) struct PeerEvents {
    owner: Arc<str>,
    answer: Answer,
}

// === impl PeerEvents ===

impl PeerEvents {
    pub(super) fn new(owner: &Arc<str>, answer: Answer) -> Self {
        let owner = Arc::clone(owner);
        Self { owner, answer }
    }

    /// The next bytes of the stream.
    pub(super) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let broken = |error: PeerError| {
            let owner = Arc::clone(&self.owner);
            StreamError::Forward(Box::new(ForwardError { owner, error }))
        };
        Poll::Ready(match ready!(self.answer.poll_next(cx)) {
            Ok(Record::Part(part)) => Some(Ok(part)),
            Ok(Record::End(Ending::Done)) => None,
            Ok(Record::End(Ending::Failed(failure))) if failure.is_cancelled => {
                Some(Err(StreamError::Cancelled))
            }
            Ok(Record::End(Ending::Failed(failure))) if failure.is_too_large => {
                Some(Err(StreamError::TooLarge))
            }
            Ok(Record::End(ending)) => Some(Err(broken(PeerError::of(ending)))),
            Ok(_) => Some(Err(broken(crate::peers::unexpected()))),
            Err(error) => Some(Err(broken(error))),
        })
    }
}
