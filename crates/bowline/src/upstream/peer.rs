//! A leg that lives in another gateway: the operations of a transport, forwarded to its owner over `[peers]`.
//!
//! The hop is judged like an upstream. Of a forward of which no byte was written nothing ran; after that only an
//! answer of the owner's proves anything. "Not mine" from the owner, or its presence gone, proves the leg lost; a
//! refused connection does not.

mod forward;

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_egress::Sent;
use bowline_wire::message::Message;
use bytes::Bytes;
use tokio::time::Instant;

pub(crate) use self::forward::{LegForward, LegOperation, Remote, Whose};
use super::event_source::EventSource;
use super::{
    Carried, Listening, LiveError, Outcome, Pulse, SentAs, StreamError, Upstream, UpstreamError,
    Whole,
};
use crate::peers::{Answer, Ending, ForwardKind, PeerError, Peers, Record};
use crate::proof::{Proof, SessionState};

/// A link to a leg that another gateway has.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerLink<'a> {
    pub(super) peers: &'a Peers,
    pub(super) remote: &'a Remote,
    pub(super) carried: &'a Carried,
}

/// Why a forward failed, and which gateway it was for.
#[derive(Debug)]
pub(crate) struct ForwardError {
    owner: Arc<str>,
    pub(crate) error: PeerError,
}

/// Events that another gateway passes on.
#[derive(Debug)]
pub(crate) struct PeerEvents {
    owner: Arc<str>,
    answer: Answer,
}

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
                Ok(Outcome::Message(whole(body)))
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
                Ok(Some(whole(body)))
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

    /// The way to a leg that another gateway has, if there is one.
    pub(super) fn peer_link<'a>(
        &'a self,
        remote: Option<&'a Remote>,
        carried: &'a Carried,
    ) -> Option<PeerLink<'a>> {
        let (remote, peers) = (remote?, self.peers.as_deref()?);
        (!remote.owner.is_gone(self.owners())).then_some(PeerLink {
            peers,
            remote,
            carried,
        })
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

fn whole(body: Bytes) -> Whole {
    Whole {
        body,
        sent_as: SentAs::own(),
        may_deny_session: false,
    }
}

// === impl PeerLink ===

impl PeerLink<'_> {
    fn failed(&self, error: PeerError) -> UpstreamError {
        if let PeerError::Failed(failure) = &error {
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
        EventSource::Peer(Box::new(PeerEvents {
            owner: Arc::clone(&self.remote.owner.id),
            answer,
        }))
    }
}

// === impl ForwardError ===

impl ForwardError {
    /// What it proves.
    pub(crate) fn proof(&self) -> Proof {
        self.error.proof()
    }
}

impl fmt::Display for ForwardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            PeerError::Failed(failure) => f.write_str(&failure.what),
            error => write!(
                f,
                "the session lives in another gateway ({}): {error}",
                self.owner
            ),
        }
    }
}

// === impl PeerEvents ===

impl PeerEvents {
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
