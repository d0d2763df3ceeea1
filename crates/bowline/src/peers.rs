//! What gateways on one store send each other: a forward, and the records that answer it.
//!
//! A thing that lives in one gateway, such as a session's child process, is used through all of them: whoever gets
//! the client's message forwards the operation to the owner. This module is the way there and back, and knows
//! neither sessions nor servers: [`Peers::forward`] sends and [`Answer`] reads at the one end, [`Peers::receive`]
//! opens and [`Sealer`] seals at the other.
//!
//! Everything is sealed with a key made of the shared secret: nobody else can read, change or make up any of it.
//! Each forward has a label in clear: to whom, from whom, which number. Names of gateways are random and new with
//! every start, a sender counts its forwards to each receiver, and a receiver takes each number once
//! ([`Numbers`](numbers::Numbers)), so nothing can be replayed, and no clock is needed. A record of an answer is
//! bound to the label of its forward and to its place among the records, and the last one says that it is the last.
//! What cannot be opened proves nothing: a forward of which a byte was written may have run.
//!
//! Nothing but a greeting is sent on a connection before it was answered, which takes the secret and the name. So
//! gateways with different secrets, with each other's addresses, or that were started again at the same one, are told
//! from one that broke off in the middle.

mod answer;
mod error;
#[cfg(feature = "planted")]
mod forgery;
mod label;
mod numbers;
mod peer;
mod receive;
mod record;
mod secret;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_egress::{Sent, Tls};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

pub(crate) use self::answer::{Answer, unexpected};
pub(crate) use self::error::PeerError;
#[cfg(feature = "planted")]
pub use self::forgery::Forgery;
pub(crate) use self::label::{Forward, ForwardKind};
use self::numbers::Numbers;
use self::peer::Peer;
pub(crate) use self::peer::{MEDIA, PATH};
pub(crate) use self::receive::{Intruder, Received, Sealer};
pub(crate) use self::record::{Ending, Failure, PART, Record};
pub(crate) use self::secret::PeerSecret;
use crate::owners::{Owner, Owners};
use crate::telemetry::Metrics;

/// How long a look for a gateway's address may take.
const LOOK: Duration = Duration::from_millis(500);

/// How often the log says that somebody sent what is no forward.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The other gateways on the store, and this one as they see it.
#[derive(Debug)]
pub(crate) struct Peers {
    me: Box<str>,
    secret: Arc<PeerSecret>,
    /// Where the others find this gateway.
    pub(crate) address: Option<String>,
    /// Those that something was forwarded to.
    known: Mutex<HashMap<Box<str>, Arc<Peer>>>,
    /// Which forwards of the others were taken.
    taken: Numbers,
    tls: Tls,
    metrics: Arc<Metrics>,
    /// When the log last said that somebody sent what is no forward.
    warned: Mutex<Option<Instant>>,
}

impl Peers {
    /// A gateway of this name, which the others find at this address.
    pub(crate) fn new(
        me: &str,
        secret: PeerSecret,
        address: Option<String>,
        tls: &Tls,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            me: me.into(),
            secret: Arc::new(secret),
            address,
            known: Mutex::default(),
            taken: Numbers::default(),
            tls: tls.clone(),
            metrics: Arc::clone(metrics),
            warned: Mutex::default(),
        }
    }

    /// Forwards an operation to an owner. Returns when the owner has accepted it.
    pub(crate) async fn forward(
        &self,
        owners: &Owners,
        owner: &Owner,
        kind: ForwardKind,
        head: &impl Serialize,
        body: &Bytes,
        sent: Sent,
    ) -> Result<Answer, PeerError> {
        let forward = Forward::new(kind, head, body);
        let forwarded = self.try_forward(owners, owner, &forward, sent).await;
        let outcome = forwarded
            .as_ref()
            .map_or_else(PeerError::name, |_| "accepted");
        self.metrics.forwarded(outcome);
        forwarded
    }

    async fn try_forward(
        &self,
        owners: &Owners,
        owner: &Owner,
        forward: &Forward,
        sent: Sent,
    ) -> Result<Answer, PeerError> {
        if owners.address_of(&owner.id).is_none() {
            // It may have come since the last look.
            owners.look(&owner.id, Instant::now(), LOOK).await;
        }
        let address = owners.address_of(&owner.id);
        let address = address.ok_or(PeerError::NoAddress)?;
        let peer = self.peer(&owner.id, &address);
        let gone = owners.until_gone(owner);
        let mut answer = peer
            .send(&self.me, &self.secret, forward, sent, gone)
            .await?;
        answer.accepted().await?;
        Ok(answer)
    }

    /// What is known of a peer. Those that are somewhere else by now, or gone, are forgotten.
    fn peer(&self, id: &str, address: &str) -> Arc<Peer> {
        let mut known = self.known.lock();
        if let Some(peer) = known.get(id)
            && peer.is_at(address)
        {
            return Arc::clone(peer);
        }
        let peer = Arc::new(Peer::new(id, address, &self.tls));
        known.insert(id.into(), Arc::clone(&peer));
        peer
    }

    /// Forgets the peers that are gone.
    pub(crate) fn keep(&self, is_present: impl Fn(&str) -> bool) {
        self.known.lock().retain(|id, _| is_present(id));
    }

    /// Whether the log has not said for a while that somebody sent what is no forward.
    pub(crate) fn may_warn(&self) -> bool {
        let mut warned = self.warned.lock();
        let is_due = warned.is_none_or(|last| last.elapsed() >= WARN_EVERY);
        if is_due {
            *warned = Some(Instant::now());
        }
        is_due
    }

    /// Closes idle connections, now and whenever one becomes idle.
    pub(crate) fn drop_idle_connections(&self) {
        self.known
            .lock()
            .values()
            .for_each(|peer| peer.close_idle());
    }
}
