//! Caches which of an upstream's tools are safe to repeat.
//!
//! The hints come from tool listings that pass through, separately for each caller: what another
//! caller was shown says nothing about this one's tools. The cache is bounded. It is cleared when
//! the server says that its tools changed, when one of the caller's sessions gets a new generation,
//! and when another server is configured. Until the caller is shown a new listing, no tool is safe
//! to repeat. A listing that was requested before that is not new: it can only withdraw hints. A
//! call that was sent before a generation was lost ran on that generation, if it ran, so the hints
//! of that time apply to it.
//!
//! If sessions are stored, so are the hints (`session/tool_hints.rs`). This cache then holds what
//! the store last had and what was learnt here since. The store counts how often the hints were
//! cleared, so that hints from before another gateway cleared them do not return.

mod changes;
mod listing;
mod stored;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bowline_store::Version;
use parking_lot::Mutex;

use self::changes::Changes;
pub(crate) use self::changes::Forgetting;
use self::listing::Listing;
pub(crate) use self::stored::Stored;
use self::stored::{Counts, SafeTools};
use crate::caller::Caller;

/// The most callers in the cache, and the most tools of each: their number, and the total length of
/// their names.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 5000;
const MAX_NAMES: usize = 32 * 1024;
/// The most changes that wait to be stored.
const MAX_UNSHARED: usize = 4 * MAX_TOOLS;

/// Tools that are safe to repeat, by caller.
#[derive(Debug, Default)]
pub(crate) struct ToolHints {
    callers: Mutex<HashMap<Audience, Known>>,
    /// Counts the moments at which hints were cleared.
    now: AtomicU64,
    /// Held while writing to the store. Otherwise all sessions of a caller that lose their server
    /// at once would conflict.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

/// Who was shown a listing: a caller and, if its requests carry a query or forwarded headers, a
/// hash of these. What one tenant was shown says nothing about another's tools.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Audience {
    pub(crate) caller: Caller,
    /// Empty if nothing is carried.
    pub(crate) tenant: Box<str>,
}

/// What is known about one audience's tools.
#[derive(Debug, Default)]
struct Known {
    safe_tools: SafeTools,
    /// When this began to count.
    epoch: Epoch,
    /// The hints for calls that were sent earlier.
    before: Option<Before>,
    /// Changes that are not stored yet.
    unshared: Changes,
    /// A task is about to store them.
    sharing: bool,
    /// What the store last had.
    seen: Option<Seen>,
}

/// The hints that counted until a generation was lost.
#[derive(Debug)]
struct Before {
    safe_tools: SafeTools,
    from: Epoch,
    to: Epoch,
}

/// The time between two moments at which hints were cleared. A listing that was requested in
/// another epoch adds no hints.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

/// The version that the store had (`None`: no entry), and its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    version: Option<Version>,
    counts: Counts,
}

/// The new value for the store, and the changes in it.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) stored: Stored,
    changes: Changes,
    epoch: Epoch,
}

/// Whether new hints are stored for other gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// There are no other gateways.
    Alone,
    /// New hints are stored.
    OnlyNew,
    /// All hints are stored, because others may have changed the stored ones.
    All,
}

/// How many tools of an answer to `tools/list` (JSON text) are safe to repeat. `None`: it is no listing.
pub(crate) fn count_safe(result: &str) -> Option<usize> {
    let tools = Listing::read(result)?.into_tools();
    Some(tools.filter(|(_, is_harmless)| *is_harmless).count())
}

impl ToolHints {
    /// The epoch for a call that is sent now.
    pub(crate) fn now(&self) -> Epoch {
        Epoch(self.now.load(Ordering::Relaxed))
    }

    /// The epoch for a listing that is requested now.
    pub(crate) fn epoch(&self, audience: &Audience) -> Epoch {
        self.with(audience, |known| known.epoch)
    }

    /// Takes the result of `tools/list` (JSON text), which was asked for in this epoch; `None` for one
    /// that teaches nothing new, whatever it says. `true`: it is for this caller to share it now.
    pub(crate) fn learn(
        &self,
        audience: &Audience,
        result: &str,
        asked: Option<Epoch>,
        sharing: Sharing,
    ) -> bool {
        let Some(listing) = Listing::read(result) else {
            return self.forget(audience, Forgetting::Changed, sharing);
        };
        self.with(audience, |known| {
            let is_new = asked == Some(known.epoch);
            for (tool, is_safe) in listing.into_tools() {
                if is_safe && !is_new {
                    continue;
                }
                if !is_safe && let Some(before) = &mut known.before {
                    before.safe_tools.set(&tool, false);
                }
                let is_news = known.safe_tools.set(&tool, is_safe);
                if sharing == Sharing::All || (sharing == Sharing::OnlyNew && is_news) {
                    known.unshared.add(tool, is_safe);
                }
            }
            known.begins_to_share()
        })
    }

    /// Clears all hints of the caller. `true`: this call must store that now.
    pub(crate) fn forget(&self, audience: &Audience, why: Forgetting, sharing: Sharing) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return false;
        }
        let now = self.next_epoch();
        self.with(audience, |known| {
            known.lose(why, now);
            if sharing != Sharing::Alone {
                known.unshared.forget_all(why);
            }
            known.begins_to_share()
        })
    }

    /// The same for a new generation, where another task stores it.
    pub(crate) fn lose(&self, audience: &Audience) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return;
        }
        let now = self.next_epoch();
        self.with(audience, |known| known.lose(Forgetting::Generation, now));
    }

    /// Clears the hints of all callers, because another server is configured.
    pub(crate) fn lose_all(&self) {
        let mut callers = self.callers.lock();
        self.next_epoch();
        callers.clear();
    }

    /// Whether a tool is safe to repeat, by the hints that the caller had when it was called.
    pub(crate) fn is_safe(&self, audience: &Audience, tool: &str, called: Epoch) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(audience);
        let counting = known.map(|known| match &known.before {
            Some(before) if before.from <= called && called < before.to => &before.safe_tools,
            _ => &known.safe_tools,
        });
        counting.is_some_and(|safe_tools| safe_tools.names.contains(tool))
    }

    /// Whether the store was ever read for this caller.
    pub(crate) fn has_seen(&self, audience: &Audience) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(audience);
        known.is_some_and(|known| known.seen.is_some())
    }

    /// The new value for the store, which had this value and version when it was read in this
    /// epoch. `None`: it must be read again.
    pub(crate) fn merge(
        &self,
        audience: &Audience,
        stored: &Stored,
        version: Option<Version>,
        read: Epoch,
    ) -> Option<Merged> {
        let now = self.next_epoch();
        self.with(audience, |known| {
            if known.epoch != read {
                return None;
            }
            known.sees(stored, version, now);
            let mut stored = stored.clone();
            known.unshared.apply(&mut stored);
            Some(Merged {
                stored,
                changes: known.unshared.clone(),
                epoch: known.epoch,
            })
        })
    }

    /// The store now has this value. `true`: there are more changes to store.
    pub(crate) fn shared(
        &self,
        audience: &Audience,
        merged: &Merged,
        version: Option<Version>,
    ) -> bool {
        let now = self.next_epoch();
        self.with(audience, |known| {
            known.unshared.are_done(&merged.changes);
            let is_older = known.seen.is_some_and(|seen| seen.version > version);
            if known.epoch == merged.epoch && !is_older {
                // If the counts changed, this gateway changed them.
                known.seen = None;
                known.sees(&merged.stored, version, now);
            }
            known.sharing = !known.unshared.are_none();
            known.sharing
        })
    }

    /// Audiences with changes that are not stored yet.
    pub(crate) fn unshared(&self) -> Vec<Audience> {
        let callers = self.callers.lock();
        let unshared = callers
            .iter()
            .filter(|(_, known)| !known.unshared.are_none());
        unshared.map(|(audience, _)| audience.clone()).collect()
    }

    /// Whether all changes are stored.
    pub(crate) fn is_shared(&self, audience: &Audience) -> bool {
        self.with(audience, |known| known.unshared.are_none())
    }

    /// The write failed: the next change tries again.
    pub(crate) fn not_shared(&self, audience: &Audience) {
        self.with(audience, |known| known.sharing = false);
    }

    /// The store had this value when it was read in this epoch. Changes that were made here since
    /// take precedence.
    pub(crate) fn see(
        &self,
        audience: &Audience,
        stored: &Stored,
        version: Option<Version>,
        read: Epoch,
    ) {
        let now = self.next_epoch();
        self.with(audience, |known| {
            if known.epoch == read {
                known.sees(stored, version, now);
            }
        });
    }

    fn with<T>(&self, audience: &Audience, what: impl FnOnce(&mut Known) -> T) -> T {
        let mut callers = self.callers.lock();
        if callers.len() >= MAX_CALLERS && !callers.contains_key(audience) {
            // This is rare, and a lost hint only prevents a retry: no order is kept for it.
            callers.retain(|_, known| !known.unshared.are_none());
            if callers.len() >= MAX_CALLERS {
                callers.clear();
            }
        }
        what(callers.entry(audience.clone()).or_insert_with(|| Known {
            epoch: self.next_epoch(),
            ..Known::default()
        }))
    }

    /// A new epoch, which begins now.
    fn next_epoch(&self) -> Epoch {
        Epoch(self.now.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

// === impl Epoch ===

impl Epoch {
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number)
    }

    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

// === impl Known ===

impl Known {
    fn begins_to_share(&mut self) -> bool {
        !self.unshared.are_none() && !std::mem::replace(&mut self.sharing, true)
    }

    /// Clears all hints, stored or not. Withdrawn hints stay withdrawn.
    fn lose(&mut self, why: Forgetting, now: Epoch) {
        let safe_tools = std::mem::take(&mut self.safe_tools);
        match why {
            Forgetting::Changed => self.before = None,
            Forgetting::Generation if safe_tools.names.is_empty() => {}
            Forgetting::Generation => {
                self.before = Some(Before {
                    safe_tools,
                    from: self.epoch,
                    to: now,
                });
            }
        }
        self.epoch = now;
        self.unshared.only_take_back();
    }

    fn sees(&mut self, stored: &Stored, version: Option<Version>, now: Epoch) {
        let newest = self.seen.and_then(|seen| seen.version);
        if version.is_some() && version < newest {
            return;
        }
        let counts = self.seen.map_or(stored.counts, |seen| seen.counts);
        if counts.changed != stored.counts.changed {
            self.lose(Forgetting::Changed, now);
        } else if counts != stored.counts {
            self.lose(Forgetting::Generation, now);
        }
        let mut safe_tools = stored.safe_tools.clone();
        self.unshared.change(&mut safe_tools);
        self.safe_tools = safe_tools;
        self.seen = Some(Seen {
            version,
            counts: stored.counts,
        });
    }
}

#[cfg(test)]
mod tests;
