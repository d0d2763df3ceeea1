//! What this gateway knows of one server for one client of a union. The lists themselves are kept elsewhere, within
//! the bounds of what is kept for all clients (`known`): what is forgotten there is asked for again.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::known::Source;
use super::list::{ALL, List};
use super::listing::{Absence, Listing};

/// The pauses between two questions for a list that could not be had although its server is well.
const FIRST_PAUSE: Duration = Duration::from_secs(3);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

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
    listing: Weak<Listing>,
    /// Who that was then.
    source: Option<Source>,
    absence: Option<Arc<Absence>>,
    /// How often the server was asked and answered, or could not be asked.
    answers: u64,
    /// Whether the server still owes an answer that nobody waits for any more.
    is_overdue: bool,
    /// When it is asked for again, and after how long the next time.
    again: Option<(Instant, Duration)>,
}

/// The outcome of asking for a list.
pub(super) type Asked = Result<Arc<Listing>, Arc<Absence>>;

// === impl Slot ===

impl Slot {
    /// The last list that the server sent to this client, if it is still the same server and account.
    pub(super) fn listing(&self, list: List, source: Source) -> Option<Arc<Listing>> {
        let known = self.lists[list as usize].lock();
        let is_its = known.source == Some(source);
        is_its.then(|| known.listing.upgrade()).flatten()
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

    /// The server did not answer in time. If its answer was noted in this very moment, that is what counts.
    pub(super) fn give_up(&self, list: List, answers: u64, late: Arc<Absence>) -> Asked {
        let mut known = self.lists[list as usize].lock();
        if known.answers != answers {
            return match &known.absence {
                Some(absence) => Err(Arc::clone(absence)),
                None => known.listing.upgrade().ok_or(late),
            };
        }
        known.is_overdue = true;
        known.absence = Some(Arc::clone(&late));
        Err(late)
    }

    /// Notes what the server answered, and who that was, if that is certain. `true` if the list could not be had before and can now.
    pub(super) fn note(&self, list: List, asked: &Asked, source: Option<Source>) -> bool {
        let mut known = self.lists[list as usize].lock();
        known.is_overdue = false;
        known.answers += 1;
        match asked {
            Ok(listing) => {
                known.listing = Arc::downgrade(listing);
                known.source = source;
                known.again = None;
                known.absence.take().is_some()
            }
            Err(absence) => {
                known.absence = Some(Arc::clone(absence));
                false
            }
        }
    }

    /// Whether it is time to ask again for a list that could not be had.
    pub(super) fn is_due(&self, list: List, is_server_well: bool) -> bool {
        let mut known = self.lists[list as usize].lock();
        if !is_server_well {
            // As soon as it is.
            known.again = None;
            return false;
        }
        let now = Instant::now();
        let (at, pause) = known.again.unwrap_or((now, FIRST_PAUSE));
        if now < at {
            return false;
        }
        known.again = Some((now + pause, (2 * pause).min(LONGEST_PAUSE)));
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    fn late() -> Arc<Absence> {
        Arc::new(Absence::late(List::Tools, Duration::from_secs(1)))
    }

    #[test]
    fn an_answer_at_the_deadline_counts_and_is_not_owed() {
        let (slot, listing) = (Slot::default(), Arc::new(Listing::default()));
        let answers = slot.answers(List::Tools);
        // It answers between the end of the wait and the note of it.
        assert!(!slot.note(List::Tools, &Ok(Arc::clone(&listing)), None));
        assert_eq!(slot.give_up(List::Tools, answers, late()), Ok(listing));
        assert!(!slot.is_overdue(List::Tools));
    }

    #[test]
    fn who_is_late_owes_an_answer_until_it_comes() {
        let (slot, listing) = (Slot::default(), Arc::new(Listing::default()));
        let answers = slot.answers(List::Tools);
        assert_eq!(slot.give_up(List::Tools, answers, late()), Err(late()));
        assert!(slot.is_overdue(List::Tools));
        assert!(slot.note(List::Tools, &Ok(listing), None));
        assert!(!slot.is_overdue(List::Tools));
    }
}
