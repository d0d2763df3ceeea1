//! What is known of an upstream's tools: which of them say that they may run twice.
//!
//! Learnt from listings that pass through, per caller: what another caller was shown says nothing of
//! what this one may rely on. Bounded, and forgotten when the server says that its tools changed, when
//! a session of the caller's gets a new generation, and when another server is configured: until the
//! caller is shown a new listing, nothing may run twice. A listing that was asked for before that is
//! not new: it only takes back. A call that was sent before a generation was lost ran on that one, if it
//! ran, so it is judged by what was known then.
//!
//! Where sessions are kept in a store, so is this (`session/tool_hints.rs`): what lies here is then what the
//! store was last seen to have, and what was learnt here since. The store counts how often all was
//! forgotten: what a gateway learnt before another one forgot does not come back.

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
use self::stored::{Counts, Harmless};
use crate::caller::Caller;

/// The most callers that are remembered, and tools of each: how many, and how long their names are
/// together.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 5000;
const MAX_NAMES: usize = 32 * 1024;
/// The most changes that wait for a store.
const MAX_UNSHARED: usize = 4 * MAX_TOOLS;

/// Tools that may run twice, by caller.
#[derive(Debug, Default)]
pub(crate) struct ToolHints {
    callers: Mutex<HashMap<Audience, Known>>,
    /// Counts moments at which something was forgotten.
    now: AtomicU64,
    /// Held by whoever writes to the store: all sessions of a caller that lose their server at once would
    /// get in each other's way.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

/// Who was shown a listing: a caller and, where its requests say for whom they are by a query or by forwarded
/// headers, a hash of these. What one tenant was shown says nothing of another's tools.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Audience {
    pub(crate) caller: Caller,
    /// Empty where nothing is carried along.
    pub(crate) tenant: Box<str>,
}

/// What is known of one audience's tools.
#[derive(Debug, Default)]
struct Known {
    harmless: Harmless,
    /// Since when.
    epoch: Epoch,
    /// What counts for calls that were sent before.
    before: Option<Before>,
    /// What the store does not have yet.
    unshared: Changes,
    /// Somebody is about to share it.
    sharing: bool,
    /// What the store was last seen to have.
    seen: Option<Seen>,
}

/// What counted until a generation was lost.
#[derive(Debug)]
struct Before {
    harmless: Harmless,
    from: Epoch,
    to: Epoch,
}

/// A time between two moments at which all was forgotten. What was asked for in another epoch teaches
/// nothing.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

/// Which version a store had (`None`: nothing), and what it counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    version: Option<Version>,
    counts: Counts,
}

/// What a store is to have, and why.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) stored: Stored,
    changes: Changes,
    epoch: Epoch,
}

/// Whether what is learnt is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// There is nobody to share it with.
    Alone,
    /// What is new is shared.
    OnlyNew,
    /// Others may have written anything by now, so all of it is.
    All,
}

impl ToolHints {
    /// When a call is sent now.
    pub(crate) fn now(&self) -> Epoch {
        Epoch(self.now.load(Ordering::Relaxed))
    }

    /// The epoch in which a listing is asked for now.
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
            for (tool, is_harmless) in listing.into_tools() {
                if is_harmless && !is_new {
                    continue;
                }
                if !is_harmless && let Some(before) = &mut known.before {
                    before.harmless.set(&tool, false);
                }
                let is_news = known.harmless.set(&tool, is_harmless);
                if sharing == Sharing::All || (sharing == Sharing::OnlyNew && is_news) {
                    known.unshared.add(tool, is_harmless);
                }
            }
            known.begins_to_share()
        })
    }

    /// Nothing that the caller was shown counts any more. `true`: it is for this caller to share that now.
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

    /// The same for a new generation, where somebody else has shared it.
    pub(crate) fn lose(&self, audience: &Audience) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return;
        }
        let now = self.next_epoch();
        self.with(audience, |known| known.lose(Forgetting::Generation, now));
    }

    /// It is another server now: nothing that any caller was shown counts.
    pub(crate) fn lose_all(&self) {
        let mut callers = self.callers.lock();
        self.next_epoch();
        callers.clear();
    }

    /// Whether a tool may run twice, as far as this caller was told when it was called.
    pub(crate) fn is_harmless(&self, audience: &Audience, tool: &str, called: Epoch) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(audience);
        let counting = known.map(|known| match &known.before {
            Some(before) if before.from <= called && called < before.to => &before.harmless,
            _ => &known.harmless,
        });
        counting.is_some_and(|harmless| harmless.names.contains(tool))
    }

    /// Whether the store was ever looked at for this caller.
    pub(crate) fn has_seen(&self, audience: &Audience) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(audience);
        known.is_some_and(|known| known.seen.is_some())
    }

    /// What a store is to have that had this, in this version, when it was read in this epoch. `None`:
    /// it is to be read again.
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

    /// The store has this now. `true`: there is more to share by now.
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
                // It is we who forgot, if anybody did.
                known.seen = None;
                known.sees(&merged.stored, version, now);
            }
            known.sharing = !known.unshared.are_none();
            known.sharing
        })
    }

    /// Those of whom the store does not have all that was learnt.
    pub(crate) fn unshared(&self) -> Vec<Audience> {
        let callers = self.callers.lock();
        let unshared = callers
            .iter()
            .filter(|(_, known)| !known.unshared.are_none());
        unshared.map(|(audience, _)| audience.clone()).collect()
    }

    /// Whether the store has all that was learnt.
    pub(crate) fn is_shared(&self, audience: &Audience) -> bool {
        self.with(audience, |known| known.unshared.are_none())
    }

    /// The store could not be told: whoever learns next tries again.
    pub(crate) fn not_shared(&self, audience: &Audience) {
        self.with(audience, |known| known.sharing = false);
    }

    /// The store had this when it was read in this epoch; what was learnt here since counts.
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
            // Rare, and forgetting costs only replays: no order is kept for it.
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

    /// An epoch that begins now, and was nobody's before.
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

    /// Nothing that was learnt counts any more, whether or not it was shared; what was taken back does.
    fn lose(&mut self, why: Forgetting, now: Epoch) {
        let harmless = std::mem::take(&mut self.harmless);
        match why {
            Forgetting::Changed => self.before = None,
            Forgetting::Generation if harmless.names.is_empty() => {}
            Forgetting::Generation => {
                self.before = Some(Before {
                    harmless,
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
        let mut harmless = stored.harmless.clone();
        self.unshared.change(&mut harmless);
        self.harmless = harmless;
        self.seen = Some(Seen {
            version,
            counts: stored.counts,
        });
    }
}

#[cfg(test)]
mod tests;
