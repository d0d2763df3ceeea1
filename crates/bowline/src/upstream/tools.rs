//! What is known of an upstream's tools: which of them say that they may run twice.
//!
//! Learnt from listings that pass through, per caller: what another caller was shown says nothing of
//! what this one may rely on. Bounded, and forgotten when the server says that its tools changed.
//! Where sessions are kept in a store, so is this (`session/shown.rs`): what lies here is then what the
//! store was last seen to have, and what was learnt here since.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use serde::Deserialize;

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
pub(crate) struct Tools(Mutex<HashMap<Caller, Known>>);

/// What is known of one caller's tools.
#[derive(Debug, Default)]
struct Known {
    harmless: Harmless,
    /// What the store does not have yet.
    unshared: Changes,
    /// Somebody is about to share it.
    sharing: bool,
    /// What the store was last seen to have.
    seen: Option<Seen>,
}

/// Which version a store had (`None`: nothing), and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) version: Option<Version>,
    pub(crate) at: u64,
}

/// The names of tools that may run twice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Harmless {
    names: BTreeSet<Box<str>>,
    length: usize,
}

/// What listings changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Nothing of what was known before counts any more.
    forget: bool,
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
    /// What the store has may be anything by now, so all of it is.
    All,
}

impl Tools {
    /// Takes the result of `tools/list` (JSON text). `sharing` tells what to share, given when the
    /// store was last looked at. `true`: it is the caller's to share it now.
    pub(crate) fn learn(
        &self,
        caller: &Caller,
        result: &str,
        sharing: impl FnOnce(Option<u64>) -> Sharing,
    ) -> bool {
        #[derive(Deserialize)]
        struct Listing {
            #[serde(default)]
            tools: Vec<Tool>,
        }
        #[derive(Deserialize)]
        struct Tool {
            name: Box<str>,
            #[serde(default)]
            annotations: Annotations,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Annotations {
            read_only_hint: bool,
            idempotent_hint: bool,
        }
        let Ok(listing) = serde_json::from_str::<Listing>(result) else {
            return false;
        };
        self.with(caller, |known| {
            let sharing = sharing(known.seen.map(|seen| seen.at));
            for tool in listing.tools {
                let Annotations {
                    read_only_hint,
                    idempotent_hint,
                } = tool.annotations;
                let is_harmless = read_only_hint || idempotent_hint;
                let is_new = known.harmless.set(&tool.name, is_harmless);
                if sharing == Sharing::All || (sharing == Sharing::News && is_new) {
                    known.unshared.add(tool.name, is_harmless);
                }
            }
            known.begins_to_share()
        })
    }

    /// The server's tools changed. `true`: it is the caller's to share that now.
    pub(crate) fn forget(&self, caller: &Caller, is_shared: bool) -> bool {
        self.with(caller, |known| {
            known.harmless = Harmless::default();
            if is_shared {
                known.unshared.forget_all();
            }
            known.begins_to_share()
        })
    }

    /// Whether a tool may run twice, as far as this caller was told.
    pub(crate) fn is_harmless(&self, caller: &Caller, tool: &str) -> bool {
        let known = self.0.lock();
        known
            .get(caller)
            .is_some_and(|known| known.harmless.names.contains(tool))
    }

    /// Whether the store was ever looked at for this caller.
    pub(crate) fn has_seen(&self, caller: &Caller) -> bool {
        let known = self.0.lock();
        known.get(caller).is_some_and(|known| known.seen.is_some())
    }

    /// What is to be shared.
    pub(crate) fn unshared(&self, caller: &Caller) -> Changes {
        self.with(caller, |known| known.unshared.clone())
    }

    /// The store has this now, of which these changes were the last. `true`: there are more by now.
    pub(crate) fn shared(
        &self,
        caller: &Caller,
        stored: Harmless,
        changes: &Changes,
        seen: Seen,
    ) -> bool {
        self.with(caller, |known| {
            known.unshared.are_done(changes);
            known.sees(stored, seen);
            known.sharing = !known.unshared.are_none();
            known.sharing
        })
    }

    /// The store could not be told: whoever learns next tries again.
    pub(crate) fn not_shared(&self, caller: &Caller) {
        self.with(caller, |known| known.sharing = false);
    }

    /// The store has this; what was learnt here since counts.
    pub(crate) fn see(&self, caller: &Caller, stored: Harmless, seen: Seen) {
        self.with(caller, |known| known.sees(stored, seen));
    }

    fn with<T>(&self, caller: &Caller, what: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.0.lock();
        if all.len() >= MAX_CALLERS && !all.contains_key(caller) {
            // Rare, and forgetting costs only replays: no order is kept for it.
            all.clear();
        }
        what(all.entry(caller.clone()).or_default())
    }
}

// === impl Known ===

impl Known {
    fn begins_to_share(&mut self) -> bool {
        !self.unshared.are_none() && !std::mem::replace(&mut self.sharing, true)
    }

    fn sees(&mut self, mut stored: Harmless, seen: Seen) {
        let newest = self.seen.and_then(|seen| seen.version);
        if seen.version.is_some() && seen.version < newest {
            return;
        }
        self.unshared.apply(&mut stored);
        self.harmless = stored;
        self.seen = Some(seen);
    }
}

// === impl Harmless ===

impl Harmless {
    /// As a store has it.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.names)
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let names: BTreeSet<Box<str>> = serde_json::from_slice(bytes)?;
        let length = names.iter().map(|name| name.len()).sum();
        Ok(Self { names, length })
    }

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

// === impl Changes ===

impl Changes {
    fn forget_all(&mut self) {
        self.forget = true;
        self.forgotten += 1;
        self.tools.clear();
    }

    fn are_none(&self) -> bool {
        !self.forget && self.tools.is_empty()
    }

    fn add(&mut self, tool: Box<str>, is_harmless: bool) {
        if self.tools.len() >= MAX_UNSHARED {
            self.forget_all();
        }
        self.tools.insert(tool, is_harmless);
    }

    /// Makes these changes.
    pub(crate) fn apply(&self, harmless: &mut Harmless) {
        if self.forget {
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
        self.forget = false;
        self.tools
            .retain(|tool, is_harmless| done.tools.get(tool) != Some(is_harmless));
    }
}

#[cfg(test)]
mod tests;
