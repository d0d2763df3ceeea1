//! What is known about the tools of one leg's server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::stored::SafeTools;
use super::{Epoch, ListOver, Pages};
use crate::upstream::policy::carried::Carried;

/// The hints of one leg.
#[derive(Debug, Default)]
pub(crate) struct LegHints {
    /// When all its caller's tools were known: one more than the last revocation at that time. It spares most calls
    /// a closer look.
    current: AtomicU64,
    pub(super) state: Mutex<LegState>,
}

#[derive(Debug, Default)]
pub(super) struct LegState {
    pub(super) hints: Option<Hints>,
    /// A list is being asked for, and since when it is wanted.
    pub(super) is_asking: bool,
    /// Calls that are sent meanwhile wait for this.
    pub(super) asking: Option<ListOver>,
    pub(super) wanted: Epoch,
    again: Weak<Again>,
}

/// Whose turn it is to list the tools once more, for calls that may have run, and the last such list while any call
/// waits.
pub(crate) type Again = tokio::sync::Mutex<Option<ListedAgain>>;

/// A list for calls that may have run.
#[derive(Debug)]
pub(crate) struct ListedAgain {
    /// It counts for calls that failed before.
    pub(crate) asked: Epoch,
    /// It counts for calls that carry the same.
    pub(crate) carried: Carried,
    pub(crate) pages: Pages,
}

/// What lists have said.
#[derive(Debug)]
pub(super) struct Hints {
    /// The revocation before them: after another one they do not count.
    pub(super) since: Epoch,
    /// They count for calls that were sent from here on.
    pub(super) from: Epoch,
    /// The list has been read to its end.
    pub(super) is_complete: bool,
    pub(super) tools: Arc<SafeTools>,
    /// The unsafe tools of the pages so far, until the last one.
    pub(super) refused: Option<Box<SafeTools>>,
}

// === impl LegHints ===

impl LegHints {
    /// Calls wait for the list that is being asked for.
    pub(crate) fn begin_waiting(&self, over: &ListOver) {
        self.state.lock().asking = Some(over.clone());
    }

    /// What the calls share that wait for another list.
    pub(crate) fn again(&self) -> Arc<Again> {
        let mut state = self.state.lock();
        state.again.upgrade().unwrap_or_else(|| {
            let again = Arc::default();
            state.again = Arc::downgrade(&again);
            again
        })
    }

    /// No call waits any more.
    pub(crate) fn end_waiting(&self) {
        self.state.lock().asking = None;
    }

    /// Nobody asks any more.
    pub(crate) fn end_asking(&self) {
        let mut state = self.state.lock();
        (state.is_asking, state.asking) = (false, None);
    }

    pub(super) fn is_current(&self, revoked: u64) -> bool {
        self.current.load(Ordering::Acquire) == revoked + 1
    }

    pub(super) fn note_current(&self, revoked: u64) {
        self.current.store(revoked + 1, Ordering::Release);
    }

    /// Takes over the hints of the generation before.
    #[cfg(feature = "planted")]
    pub(crate) fn keep(&self, before: &Self) {
        let hints = before.state.lock().hints.take();
        self.state.lock().hints = hints;
    }
}

// === impl Hints ===

impl Hints {
    /// No tool is safe.
    pub(super) fn none(since: Epoch) -> Self {
        Self {
            since,
            from: since,
            is_complete: false,
            tools: Arc::default(),
            refused: None,
        }
    }
}
