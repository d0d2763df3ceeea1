//! Which gateway owns a thing that lives in one process, such as a session's child process.
//!
//! A record in the store names the owner by its presence, and presence is the only heartbeat. An owner whose
//! presence is gone has lost what it owned. An owner that missed its own heartbeat may have been given up by the
//! others: it uses nothing that it owns before it has read the records again. [`look`] has the rule.
//!
//! Who is present is looked up every few seconds. What was seen before a record was read says nothing about the
//! owner that the record names: that one may have come later. So it takes a later look to call an owner gone.

pub(crate) mod look;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// The gateways on the same store.
#[derive(Debug)]
pub(crate) struct Owners {
    /// This gateway's name among those on the store; `None` without a store.
    me: Option<Box<str>>,
    /// Other gateways may be on the store.
    is_shared: bool,
    /// Until when this gateway may use what it owns.
    holds_until: Mutex<Option<Instant>>,
    /// Who was not gone at the last look; `None` if that is not known.
    present: watch::Sender<Option<Present>>,
    /// Somebody waits for another look.
    wanted: Notify,
}

/// Who was not gone, and where each can be reached, if it said so.
#[derive(Debug)]
struct Present {
    gateways: PresentGateways,
    /// The look began then.
    since: Instant,
}

/// Gateways that are present, or silent and not known to be gone, and where each can be reached.
pub(crate) type PresentGateways = HashMap<Box<str>, Option<Box<str>>>;

/// A gateway that a record names as the owner of something.
#[derive(Debug, Clone)]
pub(crate) struct Owner {
    pub(crate) id: Arc<str>,
    /// The record was read then.
    pub(crate) read: Instant,
}

/// Waits until an owner is gone.
pub(crate) struct UntilGone {
    owner: Owner,
    present: watch::Receiver<Option<Present>>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Owners {
    /// A gateway without a store.
    pub(crate) fn alone() -> Self {
        Self::new(None, false)
    }

    /// A gateway of this name on a store.
    pub(crate) fn on_store(me: &str, is_shared: bool) -> Self {
        Self::new(Some(me.into()), is_shared)
    }

    fn new(me: Option<Box<str>>, is_shared: bool) -> Self {
        Self {
            me,
            is_shared,
            holds_until: Mutex::default(),
            present: watch::Sender::new(None),
            wanted: Notify::new(),
        }
    }

    /// Whether this gateway may use what it owns.
    pub(crate) fn is_certain(&self) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::LateOwner) {
            return true;
        }
        !self.is_shared || self.holds()
    }

    /// Whether this gateway's heartbeat has not been missed.
    pub(crate) fn holds(&self) -> bool {
        let holds_until = *self.holds_until.lock();
        holds_until.is_some_and(|until| Instant::now() < until)
    }

    /// This gateway may use what it owns until then, at least.
    pub(crate) fn hold_until(&self, then: Instant) {
        let mut holds_until = self.holds_until.lock();
        *holds_until = (*holds_until).max(Some(then));
    }

    /// A look that began then found that these gateways are not gone; `None` if not all could be read.
    pub(crate) fn saw(&self, since: Instant, present: Option<PresentGateways>) {
        let present = present.map(|gateways| Present { gateways, since });
        self.present.send_replace(present);
    }

    /// Waits until another look is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether an owner is gone that a record named, which was read then. `false` if that is not known.
    pub(crate) fn is_gone(&self, owner: &str, read: Instant) -> bool {
        self.needs_no_look(owner) || lacks(&self.present.borrow(), owner, read)
    }

    /// Waits until an owner is gone, as [`Owners::is_gone`] knows it.
    pub(crate) fn until_gone(&self, owner: &Owner) -> UntilGone {
        UntilGone {
            owner: owner.clone(),
            present: self.present.subscribe(),
            waiting: None,
        }
    }

    /// Where a gateway can be reached, as it said last.
    pub(crate) fn address_of(&self, gateway: &str) -> Option<Box<str>> {
        let present = self.present.borrow();
        present.as_ref()?.gateways.get(gateway)?.clone()
    }

    /// The other gateways that were not gone at the last look.
    pub(crate) fn others(&self) -> Vec<Owner> {
        let (present, me) = (self.present.borrow(), self.me.as_deref());
        let Some(present) = &*present else {
            return Vec::new();
        };
        let ids = present.gateways.keys().map(|id| &**id);
        let others = ids.filter(|id| Some(*id) != me);
        let owner = |id: &str| Owner {
            id: id.into(),
            read: present.since,
        };
        others.map(owner).collect()
    }

    /// Looks again, if it takes that to know whether an owner is gone.
    pub(crate) async fn look(&self, owner: &str, read: Instant, limit: Duration) {
        let is_late = |present: &Option<Present>| {
            present.as_ref().is_some_and(|present| present.since > read)
        };
        if self.needs_no_look(owner) || is_late(&self.present.borrow()) {
            return;
        }
        self.wanted.notify_one();
        let mut present = self.present.subscribe();
        drop(tokio::time::timeout(limit, present.wait_for(is_late)).await);
    }

    /// A store of one gateway: whoever had it before has ended. And what this gateway owns, it has at hand; what
    /// it has not, it lost.
    fn needs_no_look(&self, owner: &str) -> bool {
        !self.is_shared || self.me.as_deref() == Some(owner)
    }
}

/// Whether a look that began after `read` did not find a gateway.
fn lacks(present: &Option<Present>, gateway: &str, read: Instant) -> bool {
    let present = present.as_ref();
    present.is_some_and(|it| it.since > read && !it.gateways.contains_key(gateway))
}

// === impl Owner ===

impl Owner {
    /// Whether it is gone; `false` if that is not known.
    pub(crate) fn is_gone(&self, owners: &Owners) -> bool {
        owners.is_gone(&self.id, self.read)
    }
}

// === impl UntilGone ===

impl Clone for UntilGone {
    fn clone(&self) -> Self {
        Self {
            owner: self.owner.clone(),
            present: self.present.clone(),
            waiting: None,
        }
    }
}

impl Future for UntilGone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self {
            owner,
            present,
            waiting,
        } = &mut *self;
        let waiting = waiting.get_or_insert_with(|| {
            let (Owner { id, read }, mut present) = (owner.clone(), present.clone());
            Box::pin(async move {
                let gone = present.wait_for(|present| lacks(present, &id, read));
                let is_gone = gone.await.is_ok();
                if !is_gone {
                    // Nobody looks any more.
                    std::future::pending::<()>().await;
                }
            })
        });
        waiting.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for UntilGone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("UntilGone").field(&self.owner.id).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_missed_its_heartbeat_is_not_certain() {
        let owners = Owners::on_store("a", true);
        assert!(!owners.is_certain());
        let until = Instant::now() + Duration::from_secs(12);
        owners.hold_until(until);
        owners.hold_until(until - Duration::from_secs(5));
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(owners.is_certain());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!owners.is_certain());
        assert!(Owners::alone().is_certain() && Owners::on_store("a", false).is_certain());
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_is_gone_only_if_that_is_known() {
        let owners = Owners::on_store("a", true);
        let second = Duration::from_secs(1);
        let read = Instant::now();
        assert!(!owners.is_gone("b", read), "nobody was seen yet");
        let both = || Some(HashMap::from(["a", "b"].map(|id| (id.into(), None))));
        owners.saw(read, both());
        assert!(!owners.is_gone("c", read), "it may have come since then");
        owners.saw(read + second, both());
        assert!(!owners.is_gone("b", read) && owners.is_gone("c", read));
        assert!(owners.is_gone("a", read), "it would have it at hand");
        owners.saw(read + 2 * second, None);
        assert!(!owners.is_gone("c", read));
        assert!(Owners::on_store("a", false).is_gone("b", read));
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_waited_for_where_it_is_needed() {
        let owners = Owners::on_store("a", true);
        let (read, limit) = (Instant::now(), Duration::from_secs(5));
        let looking = async {
            owners.wanted().await;
            tokio::time::advance(Duration::from_secs(1)).await;
            owners.saw(Instant::now(), Some(HashMap::from([("a".into(), None)])));
        };
        tokio::join!(owners.look("b", read, limit), looking);
        assert!(owners.is_gone("b", read));
        assert_eq!(read.elapsed(), Duration::from_secs(1));
        // Nobody looks: it is not waited for for ever, and nothing is known.
        let read = Instant::now();
        owners.look("b", read, limit).await;
        assert!(read.elapsed() >= limit && !owners.is_gone("b", read));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_goes_is_noticed_by_who_waits_for_it() {
        let owners = Owners::on_store("a", true);
        let read = Instant::now();
        let owner = Owner {
            id: "b".into(),
            read,
        };
        let second = Duration::from_secs(1);
        let with_b = HashMap::from([("b".into(), Some("10.0.0.2:1".into()))]);
        owners.saw(read + second, Some(with_b));
        assert_eq!(owners.address_of("b").as_deref(), Some("10.0.0.2:1"));
        assert_eq!(owners.others().len(), 1);
        let gone = owners.until_gone(&owner);
        let mut waiting = std::pin::pin!(gone.clone());
        let waited = tokio::time::timeout(second, &mut waiting).await;
        assert!(waited.is_err(), "it is present");
        owners.saw(read + 2 * second, None);
        let waited = tokio::time::timeout(second, &mut waiting).await;
        assert!(waited.is_err(), "nobody knows");
        owners.saw(read + 3 * second, Some(HashMap::new()));
        waiting.await;
        gone.await;
    }
}
