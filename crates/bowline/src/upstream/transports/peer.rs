//! A leg that lives in another gateway: the operations of a transport, forwarded to its owner over `[peers]`.
//!
//! The hop is judged like an upstream. Of a forward of which no byte was written nothing ran; after that only an
//! answer of the owner's proves anything. "Not mine" from the owner, or its presence gone, proves the leg lost; a
//! refused connection does not.

mod forward;

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::message::Message;
use bytes::Bytes;
use tokio::time::Instant;

pub(crate) use self::forward::{LegForward, LegOperation, Whose};
use super::error::{ForwardError, LiveError, StreamError, UpstreamError};
use super::event_source::EventSource;
use super::link::PeerLink;
use super::outcome::{Listening, Outcome, Pulse, Whole};
use super::peer_events::{PeerEvents, learn_tools};
use crate::peers::{Answer, Ending, ForwardKind, PeerError, Record};
use crate::proof::SessionState;
use crate::upstream::Upstream;

// === impl Upstream ===

impl Upstream {
    /// Sends a request.
    pub(super) async fn peer_request(
        &self,
        link: PeerLink<'_>,
        message: &Message,
        sent: Sent,
    ) -> Result<Outcome, UpstreamError> {
        let forwarding = self.forward(link, LegOperation::Request, message.raw(), sent);
        let mut answer = forwarding.await?;
        match answer.next().await.map_err(|error| link.failed(error))? {
            Record::Whole(bytes) => {
                // What the client does not read waits at the owner, which reads its server no further.
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                let reserved = link.remote.unread.reserve(bytes).await;
                let body = answer.whole().await.map_err(|error| link.failed(error))?;
                let body = match reserved {
                    Some(reserved) => reserved.until_gone(body),
                    None => body,
                };
                Ok(Outcome::Message(Whole::own(body)))
            }
            Record::Stream => Ok(Outcome::Events(link.events(answer))),
            Record::End(ending) => Err(link.failed(PeerError::of(ending))),
            _ => Err(link.failed(crate::peers::unexpected())),
        }
    }

    /// Sends what has no answer. `Some` is the server's own error.
    pub(super) async fn peer_notify(
        &self,
        link: PeerLink<'_>,
        message: &Bytes,
        sent: Sent,
    ) -> Result<Option<Whole>, UpstreamError> {
        let forwarding = self.forward(link, LegOperation::Notify, message, sent);
        let mut answer = forwarding.await?;
        match answer.next().await.map_err(|error| link.failed(error))? {
            Record::End(Ending::Done) => {
                answer.finish().await;
                Ok(None)
            }
            Record::Whole(_) => {
                let body = answer.whole().await.map_err(|error| link.failed(error))?;
                Ok(Some(Whole::own(body)))
            }
            Record::End(ending) => Err(link.failed(PeerError::of(ending))),
            _ => Err(link.failed(crate::peers::unexpected())),
        }
    }

    /// An operation that is only done, or not: a message of Bowline's own, a doubt, the end.
    pub(super) async fn peer_do(
        &self,
        link: PeerLink<'_>,
        operation: LegOperation,
        message: &Bytes,
    ) -> Result<(), UpstreamError> {
        let forwarding = self.forward(link, operation, message, Sent::default());
        let mut answer = forwarding.await?;
        answer.done().await.map_err(|error| link.failed(error))
    }

    /// Asks whether the owner has the leg, and whether it answers. What has to do with the owner takes less than
    /// any attempt: the server is not to blame for it.
    pub(super) async fn peer_ping(&self, link: PeerLink<'_>, ping: &Message) -> Pulse {
        let (owners, owner) = (self.owners(), &link.remote.owner);
        let limit = self.look_limit();
        owners.look(&owner.id, owner.read, limit).await;
        if owner.is_gone(owners) {
            return Pulse::Lost;
        }
        let forwarding = self.forward(link, LegOperation::Ping, ping.raw(), Sent::default());
        let asked = match tokio::time::timeout(limit, forwarding).await {
            Ok(Ok(mut answer)) => answer.done().await.map_err(|error| link.failed(error)),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(link.failed(PeerError::Silent(limit))),
        };
        let Err(error) = asked else {
            return Pulse::Alive;
        };
        match error.proof().session {
            SessionState::Lost => Pulse::Lost,
            SessionState::Alive => Pulse::Alive,
            SessionState::Unproven => {
                // One that stopped in good order has said so by now.
                owners.look(&owner.id, Instant::now(), limit).await;
                match owner.is_gone(owners) {
                    true => Pulse::Lost,
                    false => Pulse::OwnerUnreachable(error.to_string().into()),
                }
            }
        }
    }

    /// What the server says unasked.
    pub(super) async fn peer_listen(
        &self,
        link: PeerLink<'_>,
        last: Option<&Bytes>,
    ) -> Result<Listening, UpstreamError> {
        let last = last.cloned().unwrap_or_default();
        let forwarding = self.forward(link, LegOperation::Listen, &last, Sent::default());
        let mut answer = forwarding.await?;
        match answer.next().await.map_err(|error| link.failed(error))? {
            Record::Stream => Ok(Listening::Events(link.events(answer))),
            Record::End(ending) => Err(link.failed(PeerError::of(ending))),
            _ => Err(link.failed(crate::peers::unexpected())),
        }
    }

    async fn forward(
        &self,
        link: PeerLink<'_>,
        operation: LegOperation,
        message: &Bytes,
        sent: Sent,
    ) -> Result<Answer, UpstreamError> {
        let (owners, owner) = (self.owners(), &link.remote.owner);
        let head = LegForward::new(operation, &self.name, link.remote, link.carried);
        let forwarding = link
            .peers
            .forward(owners, owner, ForwardKind::Leg, &head, message, sent);
        forwarding.await.map_err(|error| link.failed(error))
    }
}

// === impl PeerLink ===

impl PeerLink<'_> {
    fn failed(&self, error: PeerError) -> UpstreamError {
        if let PeerError::Failed(failure) = &error {
            learn_tools(self.tools, &self.remote.caller, failure);
            if failure.is_cancelled {
                return UpstreamError::Cancelled;
            }
            if failure.is_id_taken {
                return LiveError::IdTaken.into();
            }
            if failure.is_too_large {
                return StreamError::TooLarge.into();
            }
            // The owner met it, and the client is asked where it is.
            let reason = failure.sign_in.as_deref().map(serde_json::from_str);
            if let Some(Ok(reason)) = reason {
                return UpstreamError::SignIn(Arc::new(reason));
            }
        }
        let owner = Arc::clone(&self.remote.owner.id);
        UpstreamError::Forward(Box::new(ForwardError { owner, error }))
    }

    fn events(&self, answer: Answer) -> EventSource {
        EventSource::peer(PeerEvents::new(self.remote, self.tools, answer))
    }
}
