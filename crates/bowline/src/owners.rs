//! Which gateway owns a thing that lives in one process, such as a session's child process.
//!
//! A record in the store names the owner by its presence, and presence is the only heartbeat. An owner whose
//! presence is gone has lost what it owned. An owner that missed its own heartbeat may have been given up by the
//! others: it uses nothing that it owns before it has read the records again.

use std::collections::HashSet;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The gateways on the same store.
#[derive(Debug)]
pub(crate) struct Owners {
    /// This gateway's name among those on the store; `None` without a store.
    me: Option<Box<str>>,
    /// Other gateways may be on the store.
    is_shared: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Until when the others take this gateway for present.
    holds_until: Option<Instant>,
    /// Who was present; `None` if that is not known.
    present: Option<HashSet<Box<str>>>,
}

impl Owners {
    /// A gateway without a store.
    pub(crate) fn alone() -> Self {
        Self {
            me: None,
            is_shared: false,
            seen: Mutex::default(),
        }
    }

    /// A gateway of this name on a store.
    pub(crate) fn on_store(me: &str, is_shared: bool) -> Self {
        Self {
            me: Some(me.into()),
            is_shared,
            seen: Mutex::default(),
        }
    }

    /// Whether this gateway may use what it owns.
    pub(crate) fn is_certain(&self) -> bool {
        !self.is_shared || self.holds()
    }

    /// Whether this gateway's heartbeat has not been missed.
    pub(crate) fn holds(&self) -> bool {
        let holds_until = self.seen.lock().holds_until;
        holds_until.is_some_and(|until| Instant::now() < until)
    }

    /// This gateway said then that it is present, for as long as `holds`.
    pub(crate) fn appeared(&self, then: Instant, holds: Duration) {
        self.seen.lock().holds_until = Some(then + holds);
    }

    /// These gateways are present; `None` if not all could be read.
    pub(crate) fn saw(&self, present: Option<HashSet<Box<str>>>) {
        self.seen.lock().present = present;
    }

    /// Whether an owner is gone, as far as that is known.
    pub(crate) fn is_gone(&self, owner: &str) -> bool {
        if !self.is_shared {
            // A store of one gateway: whoever had it before has ended.
            return true;
        }
        // What this gateway owns, it has at hand; what it has not, it lost.
        if self.me.as_deref() == Some(owner) {
            return true;
        }
        let seen = self.seen.lock();
        let present = seen.present.as_ref();
        present.is_some_and(|present| !present.contains(owner))
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

    #[test]
    fn an_owner_is_gone_only_if_that_is_known() {
        let owners = Owners::on_store("a", true);
        assert!(!owners.is_gone("b"), "nobody was seen yet");
        owners.saw(Some(HashSet::from(["a".into(), "b".into()])));
        assert!(!owners.is_gone("b") && owners.is_gone("c"));
        assert!(owners.is_gone("a"), "it would have it at hand");
        owners.saw(None);
        assert!(!owners.is_gone("c"));
        assert!(Owners::on_store("a", false).is_gone("b"));
    }
}
