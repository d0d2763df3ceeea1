//! Which gateway owns a thing that lives in one process, such as a session's child process.
//!
//! A record in the store names the owner by its presence, and presence is the only heartbeat. An owner whose
//! presence is gone has lost what it owned. An owner that missed its own heartbeat may have been given up by the
//! others: it uses nothing that it owns before it has read the records again.
//!
//! Who is present is looked up every few seconds. What was seen before a record was read says nothing about the
//! owner that the record names: that one may have come later. So it takes a later look to call an owner gone.

use std::collections::HashSet;
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
    /// Until when the others take this gateway for present.
    holds_until: Mutex<Option<Instant>>,
    /// Who was present at the last look; `None` if that is not known.
    present: watch::Sender<Option<Present>>,
    /// Somebody waits for another look.
    wanted: Notify,
}

/// Who was present.
#[derive(Debug)]
struct Present {
    ids: HashSet<Box<str>>,
    /// The look began then.
    since: Instant,
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
        !self.is_shared || self.holds()
    }

    /// Whether this gateway's heartbeat has not been missed.
    pub(crate) fn holds(&self) -> bool {
        let holds_until = *self.holds_until.lock();
        holds_until.is_some_and(|until| Instant::now() < until)
    }

    /// This gateway said then that it is present, for as long as `holds`.
    pub(crate) fn appeared(&self, then: Instant, holds: Duration) {
        *self.holds_until.lock() = Some(then + holds);
    }

    /// A look that began then found these gateways; `None` if not all could be read.
    pub(crate) fn saw(&self, since: Instant, present: Option<HashSet<Box<str>>>) {
        let present = present.map(|ids| Present { ids, since });
        self.present.send_replace(present);
    }

    /// Waits until another look is wanted.
    pub(crate) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether an owner is gone that a record named, which was read then. `false` if that is not known.
    pub(crate) fn is_gone(&self, owner: &str, read: Instant) -> bool {
        self.needs_no_look(owner)
            || self
                .present
                .borrow()
                .as_ref()
                .is_some_and(|present| present.since > read && !present.ids.contains(owner))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_owner_that_missed_its_heartbeat_is_not_certain() {
        let owners = Owners::on_store("a", true);
        assert!(!owners.is_certain());
        owners.appeared(Instant::now(), Duration::from_secs(12));
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
        let both = || Some(HashSet::from(["a".into(), "b".into()]));
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
            owners.saw(Instant::now(), Some(HashSet::from(["a".into()])));
        };
        tokio::join!(owners.look("b", read, limit), looking);
        assert!(owners.is_gone("b", read));
        assert_eq!(read.elapsed(), Duration::from_secs(1));
        // Nobody looks: it is not waited for for ever, and nothing is known.
        let read = Instant::now();
        owners.look("b", read, limit).await;
        assert!(read.elapsed() >= limit && !owners.is_gone("b", read));
    }
}
