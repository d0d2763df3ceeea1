//! What is known of an upstream's tools: which of them say that they may run twice.
//!
//! Learnt from listings that pass through, per caller: what another caller was shown says nothing of
//! what this one may rely on. Bounded, and forgotten when the server says that its tools changed, when
//! a session of the caller's gets a new generation, and when another server is configured: until the
//! caller is shown a new listing, nothing may run twice. A listing that was asked for before that is
//! not new: it only takes back. A call that was sent before a generation was lost ran on that one, if it
//! ran, so it is judged by what was known then.
//!
//! Where sessions are kept in a store, so is this (`session/shown.rs`): what lies here is then what the
//! store was last seen to have, and what was learnt here since. The store counts how often all was
//! forgotten: what a gateway learnt before another one forgot does not come back.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::listing::Listing;
use crate::session::Caller;
use crate::store::Version;

/// The most callers that are remembered, and tools of each: how many, and how long their names are
/// together.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 5000;
const MAX_NAMES: usize = 32 * 1024;
/// The most changes that wait for a store.
const MAX_UNSHARED: usize = 4 * MAX_TOOLS;

/// Tools that may run twice, by caller.
#[derive(Debug, Default)]
pub(crate) struct Tools {
    callers: Mutex<HashMap<Caller, Known>>,
    /// Counts moments at which something was forgotten.
    now: AtomicU64,
    /// Held by whoever writes to the store: all sessions of a caller that lose their server at once would
    /// get in each other's way.
    pub(crate) writing: tokio::sync::Mutex<()>,
}

/// What is known of one caller's tools.
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

/// Why nothing counts any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// The server's tools changed.
    Changed,
    /// A session has a new generation.
    Generation,
}

/// Which version a store had (`None`: nothing), and what it counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    version: Option<Version>,
    counts: Counts,
}

/// How often all was forgotten, and how often because the tools changed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Counts {
    forgotten: u64,
    changed: u64,
}

/// What a store has for one caller.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Which server it is about, whatever is configured under its name now.
    server: Box<str>,
    counts: Counts,
    harmless: Harmless,
}

/// The names of tools that may run twice.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeSet<Box<str>>", into = "BTreeSet<Box<str>>")]
struct Harmless {
    names: BTreeSet<Box<str>>,
    length: usize,
}

/// What a store is to have, and why.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) stored: Stored,
    changes: Changes,
    epoch: Epoch,
}

/// What listings changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Changes {
    /// Nothing of what was known before counts any more.
    forget: Option<Forgetting>,
    /// How often that was so.
    forgotten: u64,
    /// Whether a tool may run twice.
    tools: HashMap<Box<str>, bool>,
}

/// Whether what is learnt is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// There is nobody to share it with.
    Alone,
    /// What is new is shared.
    News,
    /// Others may have written anything by now, so all of it is.
    All,
}

impl Tools {
    /// When a call is sent now.
    pub(crate) fn now(&self) -> Epoch {
        Epoch(self.now.load(Ordering::Relaxed))
    }

    /// The epoch in which a listing is asked for now.
    pub(crate) fn epoch(&self, caller: &Caller) -> Epoch {
        self.with(caller, |known| known.epoch)
    }

    /// Takes the result of `tools/list` (JSON text), which was asked for in this epoch; `None` for one
    /// that teaches nothing new, whatever it says. `true`: it is the caller's to share it now.
    pub(crate) fn learn(
        &self,
        caller: &Caller,
        result: &str,
        asked: Option<Epoch>,
        sharing: Sharing,
    ) -> bool {
        let Some(listing) = Listing::read(result) else {
            return self.forget(caller, Forgetting::Changed, sharing);
        };
        self.with(caller, |known| {
            let is_new = asked == Some(known.epoch);
            for (tool, is_harmless) in listing.into_tools() {
                if is_harmless && !is_new {
                    continue;
                }
                if !is_harmless && let Some(before) = &mut known.before {
                    before.harmless.set(&tool, false);
                }
                let is_news = known.harmless.set(&tool, is_harmless);
                if sharing == Sharing::All || (sharing == Sharing::News && is_news) {
                    known.unshared.add(tool, is_harmless);
                }
            }
            known.begins_to_share()
        })
    }

    /// Nothing that the caller was shown counts any more. `true`: it is the caller's to share that now.
    pub(crate) fn forget(&self, caller: &Caller, why: Forgetting, sharing: Sharing) -> bool {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return false;
        }
        let now = self.next_epoch();
        self.with(caller, |known| {
            known.lose(why, now);
            if sharing != Sharing::Alone {
                known.unshared.forget_all(why);
            }
            known.begins_to_share()
        })
    }

    /// The same for a new generation, where somebody else has shared it.
    pub(crate) fn lose(&self, caller: &Caller) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return;
        }
        let now = self.next_epoch();
        self.with(caller, |known| known.lose(Forgetting::Generation, now));
    }

    /// It is another server now: nothing that any caller was shown counts.
    pub(crate) fn lose_all(&self) {
        let mut callers = self.callers.lock();
        self.next_epoch();
        callers.clear();
    }

    /// Whether a tool may run twice, as far as this caller was told when it was called.
    pub(crate) fn is_harmless(&self, caller: &Caller, tool: &str, called: Epoch) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(caller);
        let counting = known.map(|known| match &known.before {
            Some(before) if before.from <= called && called < before.to => &before.harmless,
            _ => &known.harmless,
        });
        counting.is_some_and(|harmless| harmless.names.contains(tool))
    }

    /// Whether the store was ever looked at for this caller.
    pub(crate) fn has_seen(&self, caller: &Caller) -> bool {
        let callers = self.callers.lock();
        let known = callers.get(caller);
        known.is_some_and(|known| known.seen.is_some())
    }

    /// What a store is to have that had this, in this version, when it was read in this epoch. `None`:
    /// it is to be read again.
    pub(crate) fn merge(
        &self,
        caller: &Caller,
        stored: &Stored,
        version: Option<Version>,
        read: Epoch,
    ) -> Option<Merged> {
        let now = self.next_epoch();
        self.with(caller, |known| {
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
        caller: &Caller,
        merged: &Merged,
        version: Option<Version>,
    ) -> bool {
        let now = self.next_epoch();
        self.with(caller, |known| {
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

    /// Whether the store has all that was learnt.
    pub(crate) fn is_shared(&self, caller: &Caller) -> bool {
        self.with(caller, |known| known.unshared.are_none())
    }

    /// The store could not be told: whoever learns next tries again.
    pub(crate) fn not_shared(&self, caller: &Caller) {
        self.with(caller, |known| known.sharing = false);
    }

    /// The store had this when it was read in this epoch; what was learnt here since counts.
    pub(crate) fn see(
        &self,
        caller: &Caller,
        stored: &Stored,
        version: Option<Version>,
        read: Epoch,
    ) {
        let now = self.next_epoch();
        self.with(caller, |known| {
            if known.epoch == read {
                known.sees(stored, version, now);
            }
        });
    }

    fn with<T>(&self, caller: &Caller, what: impl FnOnce(&mut Known) -> T) -> T {
        let mut callers = self.callers.lock();
        if callers.len() >= MAX_CALLERS && !callers.contains_key(caller) {
            // Rare, and forgetting costs only replays: no order is kept for it.
            callers.retain(|_, known| !known.unshared.are_none());
            if callers.len() >= MAX_CALLERS {
                callers.clear();
            }
        }
        what(callers.entry(caller.clone()).or_insert_with(|| Known {
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

// === impl Stored ===

impl Stored {
    /// The same as far as it is about this server.
    pub(crate) fn about(&self, server: &str) -> Self {
        let is_it = *self.server == *server;
        Self {
            server: server.into(),
            counts: self.counts,
            harmless: match is_it {
                true => self.harmless.clone(),
                false => Harmless::default(),
            },
        }
    }
}

// === impl Harmless ===

impl Harmless {
    /// Whether that was new.
    fn set(&mut self, name: &str, is_harmless: bool) -> bool {
        if !is_harmless {
            let was_known = self.names.remove(name);
            self.length -= if was_known { name.len() } else { 0 };
            return was_known;
        }
        let has_room = self.names.len() < MAX_TOOLS && self.length + name.len() <= MAX_NAMES;
        let is_new = has_room && self.names.insert(name.into());
        self.length += if is_new { name.len() } else { 0 };
        is_new
    }
}

impl From<BTreeSet<Box<str>>> for Harmless {
    fn from(names: BTreeSet<Box<str>>) -> Self {
        let length = names.iter().map(|name| name.len()).sum();
        Self { names, length }
    }
}

impl From<Harmless> for BTreeSet<Box<str>> {
    fn from(harmless: Harmless) -> Self {
        harmless.names
    }
}

// === impl Changes ===

impl Changes {
    fn forget_all(&mut self, why: Forgetting) {
        if self.forget != Some(Forgetting::Changed) {
            self.forget = Some(why);
        }
        self.forgotten += 1;
        self.tools.clear();
    }

    fn only_take_back(&mut self) {
        self.tools.retain(|_, is_harmless| !*is_harmless);
    }

    fn are_none(&self) -> bool {
        self.forget.is_none() && self.tools.is_empty()
    }

    fn add(&mut self, tool: Box<str>, is_harmless: bool) {
        if self.tools.len() >= MAX_UNSHARED {
            self.forget_all(Forgetting::Changed);
        }
        self.tools.insert(tool, is_harmless);
    }

    /// Makes these changes in what a store has.
    fn apply(&self, stored: &mut Stored) {
        // Others are told by the count, where there was anything to forget: many sessions of one
        // caller may be recovered at the same time.
        if let Some(why) = self.forget
            && !stored.harmless.names.is_empty()
        {
            stored.counts.forgotten += 1;
            stored.counts.changed += u64::from(why == Forgetting::Changed);
        }
        self.change(&mut stored.harmless);
    }

    fn change(&self, harmless: &mut Harmless) {
        if self.forget.is_some() {
            *harmless = Harmless::default();
        }
        for (tool, is_harmless) in &self.tools {
            harmless.set(tool, *is_harmless);
        }
    }

    /// These are done; those that were added since are not.
    fn are_done(&mut self, done: &Self) {
        if self.forgotten != done.forgotten {
            return;
        }
        self.forget = None;
        self.tools
            .retain(|tool, is_harmless| done.tools.get(tool) != Some(is_harmless));
    }
}

#[cfg(test)]
mod tests;
