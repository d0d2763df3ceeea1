//! A stream of a leg that lives in another gateway.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::error::{ForwardError, StreamError};
use super::live::Remote;
use crate::caller::Caller;
use crate::peers::{Answer, Ending, Failure, PeerError, Record};
use crate::upstream::policy::{Audience, ToolHints};

/// Events that another gateway passes on.
#[derive(Debug)]
pub(crate) struct PeerEvents {
    owner: Arc<str>,
    caller: Caller,
    tools: Arc<ToolHints>,
    answer: Answer,
}

/// An owner that could not write to the store says that the server's tools have changed.
pub(super) fn learn_tools(tools: &ToolHints, caller: &Caller, failure: &Failure) {
    if failure.tools_changed {
        tools.revoke(&Audience {
            caller: caller.clone(),
            // Gateways share nothing about a tenant.
            tenant: Box::default(),
        });
    }
}

// === impl PeerEvents ===

impl PeerEvents {
    pub(super) fn new(remote: &Remote, tools: &Arc<ToolHints>, answer: Answer) -> Self {
        Self {
            owner: Arc::clone(&remote.owner.id),
            caller: remote.caller.clone(),
            tools: Arc::clone(tools),
            answer,
        }
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
        let next = ready!(self.answer.poll_next(cx));
        if let Ok(Record::End(Ending::Failed(failure))) = &next {
            learn_tools(&self.tools, &self.caller, failure);
        }
        Poll::Ready(match next {
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
