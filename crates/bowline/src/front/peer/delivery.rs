//! A client's message for a stream of its that another gateway has.

use bowline_egress::Sent;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::hub::Hub;
use crate::owners::Owner;
use crate::peers::{Ending, Forward, ForwardKind, PeerError};
use crate::upstream::{Carried, Whose};

/// For which stream, in whose name, and what goes along. The receiver checks all of it again.
#[derive(Serialize, Deserialize)]
pub(crate) struct Delivery {
    /// What the client's URL names the stream by.
    pub(crate) stream: String,
    #[serde(flatten)]
    pub(crate) whose: Whose,
    #[serde(default)]
    pub(crate) carried: Carried,
}

/// Forwards a message to the gateway that has its client's stream. Returns when that has taken it.
#[expect(dead_code, reason = "for a front whose clients have streams")]
pub(crate) async fn deliver_to(
    hub: &Hub,
    gateway: &Owner,
    delivery: &Delivery,
    message: &Bytes,
) -> Result<(), PeerError> {
    let (peers, owners) = (hub.peers.as_ref(), &hub.processes.owners);
    let peers = peers.ok_or(PeerError::NoAddress)?;
    let (kind, sent) = (ForwardKind::Delivery, Sent::default());
    let forwarding = peers.forward(owners, gateway, kind, delivery, message, sent);
    forwarding.await?.done().await
}

/// Takes a message for a stream that this gateway has. There is no front with such streams yet.
pub(super) fn take(forward: &Forward) -> Ending {
    match forward.head::<Delivery>() {
        Some(_) => Ending::NotMine("this gateway has no such stream".into()),
        None => Ending::Refused("it names no stream".into()),
    }
}

// The stream's name is a client's secret.
impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Delivery(…)")
    }
}
