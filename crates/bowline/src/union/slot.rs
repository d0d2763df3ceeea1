//! What this gateway knows of one server for one client of a union.

use std::sync::Arc;

use parking_lot::Mutex;

use super::list::{ALL, List};
use super::listing::{Absence, Listing};

/// What is known of one server for one client.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Held while the server's member is opened.
    pub(super) opening: tokio::sync::Mutex<()>,
    lists: [Mutex<SlotList>; ALL.len()],
}

/// What is known of one of its lists.
#[derive(Debug, Default)]
struct SlotList {
    listing: Option<Arc<Listing>>,
    absence: Option<Arc<Absence>>,
    /// How often the server was asked and answered, or could not be asked.
    answers: u64,
    /// Whether the server still owes an answer that nobody waits for any more.
    is_overdue: bool,
}

/// The outcome of asking for a list.
pub(super) type Asked = Result<Arc<Listing>, Arc<Absence>>;

// === impl Slot ===

impl Slot {
    /// The last list that the server sent to this client.
    pub(super) fn listing(&self, list: List) -> Option<Arc<Listing>> {
        self.lists[list as usize].lock().listing.clone()
    }

    /// Why the list could not be had the last time, if it could not.
    pub(super) fn absence(&self, list: List) -> Option<Arc<Absence>> {
        self.lists[list as usize].lock().absence.clone()
    }

    pub(super) fn is_overdue(&self, list: List) -> bool {
        self.lists[list as usize].lock().is_overdue
    }

    pub(super) fn answers(&self, list: List) -> u64 {
        self.lists[list as usize].lock().answers
    }

    /// The server did not answer in time. If its answer was noted in this very moment, it owes none.
    pub(super) fn give_up(&self, list: List, answers: u64, absence: &Arc<Absence>) {
        let mut known = self.lists[list as usize].lock();
        if known.answers != answers {
            return;
        }
        known.is_overdue = true;
        known.absence = Some(Arc::clone(absence));
    }

    /// Notes what the server answered. `true` if the list could not be had before and can now.
    pub(super) fn note(&self, list: List, asked: &Asked) -> bool {
        let mut known = self.lists[list as usize].lock();
        known.is_overdue = false;
        known.answers += 1;
        match asked {
            Ok(listing) => {
                known.listing = Some(Arc::clone(listing));
                known.absence.take().is_some()
            }
            Err(absence) => {
                known.absence = Some(Arc::clone(absence));
                false
            }
        }
    }

    /// The lists that could not be had, and that nobody waits for.
    pub(super) fn missing(&self) -> impl Iterator<Item = List> {
        let is_missing = |list: &List| {
            let known = self.lists[*list as usize].lock();
            known.absence.is_some() && !known.is_overdue
        };
        ALL.into_iter().filter(is_missing)
    }
}
