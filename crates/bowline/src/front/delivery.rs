//! A client's message for its HTTP+SSE stream: put into the mailbox of the stream if that is here, or else forwarded to
//! the gateway that has it, and put into the mailbox there.

use std::time::Duration;

use bowline_egress::Sent;
use bowline_wire::batch::is_batch;
use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::fault::Fault;
use crate::hub::Hub;
use crate::mailboxes::{Content, Mailbox, StreamAt};
use crate::owners::Owner;
use crate::peers::{Ending, Forward, ForwardKind, PeerError};
use crate::upstream::{Carried, Whose};

/// How long the other gateway may take to put a message into a mailbox, if the server's `call_timeout` is not less.
const DELIVERED_WITHIN: Duration = Duration::from_secs(30);

/// For which stream, in whose name, and what goes along. The receiver checks all of it again.
#[derive(Serialize, Deserialize)]
pub(super) struct Delivery {
    /// The token in the client's URL.
    stream: String,
    #[serde(flatten)]
    whose: Whose,
    #[serde(default)]
    carried: Carried,
}

impl Delivery {
    pub(super) fn new(token: &str, whose: Whose, carried: Carried) -> Self {
        Self {
            stream: token.to_owned(),
            whose,
            carried,
        }
    }

    /// Forwards a message to the gateway that has its client's stream. Returns when that has taken it.
    pub(super) async fn forward(
        &self,
        hub: &Hub,
        gateway: &str,
        message: &Bytes,
        call_timeout: Option<Duration>,
    ) -> Result<(), Fault> {
        let Some(peers) = &hub.peers else {
            return Err(Fault::StreamElsewhere);
        };
        let owner = Owner {
            id: gateway.into(),
            read: Instant::now(),
        };
        let (owners, kind) = (&hub.channels.owners, ForwardKind::Delivery);
        let sent = Sent::default();
        let delivering = async {
            let forwarding = peers.forward(owners, &owner, kind, self, message, sent.clone());
            forwarding.await?.done().await
        };
        let limit = call_timeout.map_or(DELIVERED_WITHIN, |limit| limit.min(DELIVERED_WITHIN));
        match tokio::time::timeout(limit, delivering).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(fault(&error)),
            Err(_) if sent.get() => Err(Fault::DeliveryUnknown),
            Err(_) => Err(Fault::StreamUnreachable),
        }
    }
}

/// What the client learns of a message that was not delivered. The end of a stream ends its session.
fn fault(error: &PeerError) -> Fault {
    match error {
        PeerError::NotMine(_) | PeerError::Refused(_) | PeerError::Gone { was_sent: false } => {
            Fault::UnknownSession
        }
        PeerError::NoAddress
        | PeerError::Unreachable(_)
        | PeerError::Silent(_)
        | PeerError::Stranger(_)
        | PeerError::Unsure(_) => {
            tracing::debug!(%error, "a message was not delivered to the gateway that has its stream");
            Fault::StreamUnreachable
        }
        PeerError::Broken(_) | PeerError::Gone { was_sent: true } | PeerError::Failed(_) => {
            tracing::debug!(%error, "whether a message was delivered is not known");
            Fault::DeliveryUnknown
        }
    }
}

/// Puts a client's message into the mailbox of its stream, which is open here.
pub(super) fn put(
    hub: &Hub,
    mailbox: &Mailbox,
    body: Bytes,
    carried: Carried,
    via: Option<HeaderValue>,
) -> Result<(), Fault> {
    let mut carried = carried.with_query(mailbox.query.as_deref());
    if is_batch(&body) {
        return match hub.drain.has_begun() {
            true => Err(Fault::Stopping),
            false => mailbox.put(Content::Batch(body), carried),
        };
    }
    let message = Message::parse(body)?;
    if message.kind() == Kind::Request && hub.drain.has_begun() {
        return Err(Fault::Stopping);
    }
    if is_initialize(&message) {
        carried.via = via;
    }
    mailbox.put(Content::Message(message), carried)
}

pub(super) fn is_initialize(message: &Message) -> bool {
    message.kind() == Kind::Request && message.method() == Some("initialize")
}

/// Takes a message that another gateway forwarded for a stream that this one has.
pub(super) async fn take(hub: &Hub, forward: &Forward, from: &str) -> Ending {
    let Some(delivery) = forward.head::<Delivery>() else {
        return Ending::Refused("it names no stream".into());
    };
    let Delivery {
        stream,
        whose,
        carried,
    } = delivery;
    let to = hub.routes.named(whose.server());
    let (Some(to), Some(caller)) = (to, whose.caller()) else {
        return Ending::Refused("it names no server, or nobody".into());
    };
    let Some(permitted) = to.permit(&hub.callers, &caller) else {
        tracing::warn!(
            gateway = from,
            "a forward was refused: its caller is not configured here, or may not use the server"
        );
        return Ending::Refused("its caller is not configured here".into());
    };
    let owners = &hub.channels.owners;
    let located = hub.mailboxes.locate(&stream, &permitted, owners);
    let StreamAt::Here(mailbox) = located.await else {
        return Ending::NotMine("this gateway has no such stream".into());
    };
    let via = hub.pseudonym.after(&HeaderMap::new());
    match put(hub, &mailbox, forward.body.clone(), carried, via) {
        Ok(()) => Ending::Done,
        Err(Fault::UnknownSession) => Ending::NotMine("this gateway has no such stream".into()),
        Err(fault) => Ending::Unsure(fault.to_string().into()),
    }
}

// The stream's name is a client's secret.
impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delivery(…)")
    }
}
