//! Which of an upstream's tools are safe to repeat.
//!
//! A call is judged by the hints of the leg on which it was sent: those of lists that were requested on that leg
//! ([`LegHints`]). A new generation begins without hints, and Bowline lists again by itself
//! (`exchange/replay/own_list.rs`). Legs of one caller at one URL share such a list: it counts for all that were
//! open before it was requested.
//!
//! Hints are revoked, on all legs of a caller, when the server says that its tools changed, when a list takes back
//! what an earlier one said, and when another server is configured. What was sent before that is not repeated. Other
//! callers have their own hints: what one was shown says nothing about another's tools.
//!
//! Gateways on one store tell each other there what was revoked (`session/tool_hints.rs`).

mod leg_hints;
mod listing;
mod stored;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use self::leg_hints::{Hints, LegState};
pub(crate) use self::leg_hints::{LegHints, ListedAgain};
use self::listing::Listing;
pub(crate) use self::listing::Pages;
use self::stored::SafeTools;
pub(crate) use self::stored::Stored;
use crate::caller::Caller;

/// The most callers in the cache, and the most tools of each: their number, and the total length of
/// their names.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 5000;
const MAX_NAMES: usize = 32 * 1024;

/// What the ids of Bowline's own lists say. In a live channel nothing but its answer comes to such a request.
pub(crate) const OWN_LIST: &str = "tools";

/// What is known about the tools of an upstream, by caller.
#[derive(Debug, Default)]
pub(crate) struct ToolHints {
    callers: Mutex<HashMap<Audience, Known>>,
    /// Puts revocations, lists and calls into an order.
    now: AtomicU64,
    /// When any hints were last revoked.
    revoked: AtomicU64,
    /// Held while writing to the store. Otherwise all sessions of a caller would conflict.
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

/// A moment in the order of revocations, lists and calls.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Epoch(u64);

/// What is known about one audience's tools.
#[derive(Debug, Default)]
struct Known {
    /// When the hints were last revoked: only those that were asked for since count.
    since: Epoch,
    /// The safe tools of all lists since then.
    believed: SafeTools,
    /// The hints that a leg had last. Legs with equal ones share them.
    last: Arc<SafeTools>,
    /// The last list of Bowline's own that others may share.
    shared: Option<OwnList>,
    /// What the store last had.
    seen: Option<Stored>,
    /// The store has to be told of a revocation.
    owes: bool,
    turn: ListTurn,
}

/// A list of Bowline's own.
#[derive(Debug)]
struct OwnList {
    asked: Epoch,
    /// Where it was requested.
    endpoint: Box<str>,
    tools: Arc<SafeTools>,
}

/// A list of Bowline's own that a leg wants.
#[derive(Debug)]
pub(crate) enum WantedList {
    /// Nobody has asked for it yet.
    New {
        turn: ListTurn,
        /// The leg wanted none before.
        is_first: bool,
    },
    /// It is being asked for.
    UnderWay(ListOver),
}

/// Ends when nobody needs to wait any more for a list of Bowline's own.
pub(crate) type ListOver = watch::Receiver<()>;

/// Whose turn it is to list, and when a list was last requested, and answered or not.
pub(crate) type ListTurn = Arc<tokio::sync::Mutex<Option<LastList>>>;

/// The last list of Bowline's own for an audience.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastList {
    pub(crate) asked: Epoch,
    pub(crate) at: Instant,
}

/// The new value for the store, and the epoch that it is about.
#[derive(Debug)]
pub(crate) struct Merged {
    pub(crate) stored: Stored,
    since: Epoch,
}

/// How many tools of an answer to `tools/list` (JSON text) are safe to repeat. `None`: it is no listing.
pub(crate) fn count_safe(result: &str) -> Option<usize> {
    let tools = Listing::read(result)?.into_tools();
    Some(tools.filter(|(_, is_safe)| *is_safe).count())
}

// === impl ToolHints ===

impl ToolHints {
    /// The epoch for a call that is sent now.
    pub(crate) fn now(&self) -> Epoch {
        Epoch(self.now.load(Ordering::Relaxed))
    }

    /// The epoch for a list that is requested now.
    pub(crate) fn since(&self, audience: &Audience) -> Epoch {
        self.with(audience, |known| known.since)
    }

    /// Takes the result of `tools/list` (JSON text) that was requested on this leg in this epoch; `None` for one
    /// that can only revoke.
    pub(crate) fn learn(
        &self,
        audience: &Audience,
        leg: &LegHints,
        result: &str,
        asked: Option<Epoch>,
    ) {
        let Some(listing) = Listing::read(result) else {
            return self.revoke(audience);
        };
        self.with(audience, |known| {
            let is_new = asked == Some(known.since);
            if listing.takes_back(|tool| known.is_relied_on(tool)) {
                self.revoke_known(known);
            }
            if is_new {
                self.learn_new(known, &mut leg.state.lock(), asked, listing);
            }
        });
    }

    fn learn_new(
        &self,
        known: &mut Known,
        leg: &mut LegState,
        asked: Option<Epoch>,
        listing: Listing,
    ) {
        let earlier = leg.hints.take().filter(|hints| Some(hints.since) == asked);
        let was_complete = earlier.as_ref().is_some_and(|hints| hints.is_complete);
        let mut pages = earlier.map_or_else(Pages::default, |hints| {
            let refused = hints.refused.map(|refused| *refused);
            Pages::after(SafeTools::clone(&hints.tools), refused.unwrap_or_default())
        });
        let is_last = listing.is_last;
        pages.add(listing);
        let (mut tools, refused) = (pages.safe, pages.refused);
        for tool in &tools.names {
            known.believed.set(tool, true);
        }
        // What is not remembered could not be taken back by another session's list.
        tools.keep_only(&known.believed);
        if *known.last != tools {
            known.last = Arc::new(tools);
        }
        leg.hints = Some(Hints {
            since: known.since,
            from: known.since,
            is_complete: is_last || was_complete,
            tools: Arc::clone(&known.last),
            refused: (!is_last).then(|| refused.into()),
        });
    }

    /// Revokes all hints of the caller: its tools may have changed.
    pub(crate) fn revoke(&self, audience: &Audience) {
        self.with(audience, |known| self.revoke_known(known));
    }

    fn revoke_known(&self, known: &mut Known) {
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            return;
        }
        known.revoke(self.next());
        known.owes = true;
        self.revoked.store(known.since.0, Ordering::Release);
    }

    /// Revokes the hints of all callers, because another server is configured.
    pub(crate) fn revoke_all(&self) {
        let mut callers = self.callers.lock();
        callers.clear();
        self.revoked.store(self.next().0, Ordering::Release);
    }

    /// Whether a call of this tool that was sent on this leg in this epoch is safe to repeat. A store has to know
    /// of the tool: otherwise no other gateway could have revoked what is known of it.
    pub(crate) fn is_safe(
        &self,
        audience: &Audience,
        leg: &LegHints,
        (tool, sent): (&str, Epoch),
        is_stored: bool,
    ) -> bool {
        let callers = self.callers.lock();
        let Some(known) = callers.get(audience) else {
            return false;
        };
        let state = leg.state.lock();
        let hints = state.hints.as_ref();
        let is_safe = hints.is_some_and(|hints| {
            hints.since == known.since && hints.from <= sent && hints.tools.names.contains(tool)
        });
        let seen = known.seen.as_ref();
        is_safe && (!is_stored || seen.is_some_and(|it| it.safe_tools.names.contains(tool)))
    }

    /// Whether all tools of this leg's caller are known, as far as can be told without a lock.
    pub(crate) fn is_known(&self, leg: &LegHints) -> bool {
        leg.is_current(self.revoked.load(Ordering::Acquire))
    }

    /// Whether the tools should be listed for this leg, at this endpoint if legs may share a list there. If so, it
    /// wants a list from now on.
    pub(crate) fn wants_list(
        &self,
        audience: impl FnOnce() -> Audience,
        leg: &LegHints,
        endpoint: Option<&str>,
    ) -> Option<WantedList> {
        self.with(&audience(), |known| {
            let mut state = leg.state.lock();
            if self.has_list(known, leg, &mut state, endpoint) {
                return None;
            }
            if state.is_asking {
                return state.asking.clone().map(WantedList::UnderWay);
            }
            state.is_asking = true;
            let before = std::mem::replace(&mut state.wanted, self.next());
            Some(WantedList::New {
                turn: Arc::clone(&known.turn),
                is_first: before == Epoch::default(),
            })
        })
    }

    /// Whether a leg that wanted a list has one by now: its own, or one that another leg has asked for.
    pub(crate) fn got_list(
        &self,
        audience: &Audience,
        leg: &LegHints,
        endpoint: Option<&str>,
    ) -> bool {
        self.with(audience, |known| {
            self.has_list(known, leg, &mut leg.state.lock(), endpoint)
        })
    }

    fn has_list(
        &self,
        known: &Known,
        leg: &LegHints,
        state: &mut LegState,
        endpoint: Option<&str>,
    ) -> bool {
        let hints = state.hints.as_ref();
        if !hints.is_some_and(|hints| hints.since == known.since && hints.is_complete) {
            let shared = known.shared.as_ref();
            let Some(shared) = shared.filter(|list| {
                state.is_asking && list.asked > state.wanted && endpoint == Some(&*list.endpoint)
            }) else {
                return false;
            };
            state.hints = Some(Hints {
                since: known.since,
                // What was sent before may have met another server than the one that was asked.
                from: self.next(),
                is_complete: true,
                tools: Arc::clone(&shared.tools),
                refused: None,
            });
        }
        leg.note_current(self.revoked.load(Ordering::Acquire));
        true
    }

    /// When a list is requested now.
    pub(crate) fn next(&self) -> Epoch {
        Epoch(self.now.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// A list of Bowline's own is over, which was requested in the epoch `since`, at this moment. Without hints, no
    /// tool is safe.
    pub(crate) fn listed(
        &self,
        audience: &Audience,
        leg: &LegHints,
        (since, asked): (Epoch, Epoch),
        endpoint: Option<&str>,
    ) {
        self.with(audience, |known| {
            let mut state = leg.state.lock();
            if state.hints.as_ref().map(|hints| hints.since) != Some(known.since) {
                if since != known.since {
                    return;
                }
                state.hints = Some(Hints::none(since));
            }
            let Some(hints) = &mut state.hints else {
                return;
            };
            hints.is_complete = true;
            known.shared = endpoint.map(|endpoint| OwnList {
                asked,
                endpoint: endpoint.into(),
                tools: Arc::clone(&hints.tools),
            });
        });
    }

    /// The new value for the store, which has this one.
    pub(crate) fn merge(&self, audience: &Audience, stored: &Stored) -> Merged {
        self.with(audience, |known| {
            self.sees(known, stored);
            let mut stored = stored.clone();
            if known.owes {
                stored.revoke();
            }
            for tool in &known.believed.names {
                stored.safe_tools.set(tool, true);
            }
            Merged {
                stored,
                since: known.since,
            }
        })
    }

    /// The store now has this value.
    pub(crate) fn stored(&self, audience: &Audience, merged: Merged) {
        self.with(audience, |known| {
            known.owes &= known.since != merged.since;
            known.seen = Some(merged.stored);
        });
    }

    /// The store has this value.
    pub(crate) fn see(&self, audience: &Audience, stored: &Stored) {
        self.with(audience, |known| self.sees(known, stored));
    }

    /// If another gateway has revoked anything, or that is not known, nothing counts that was known here.
    fn sees(&self, known: &mut Known, stored: &Stored) {
        let is_news = match &known.seen {
            Some(seen) => seen.counts != stored.counts,
            None => !known.believed.names.is_empty(),
        };
        if is_news {
            known.revoke(self.next());
            self.revoked.store(known.since.0, Ordering::Release);
        }
        known.seen = Some(stored.clone());
    }

    /// Audiences of which the store has to be told something.
    pub(crate) fn unstored(&self) -> Vec<Audience> {
        let callers = self.callers.lock();
        let unstored = callers.iter().filter(|(_, known)| !known.is_stored());
        unstored.map(|(audience, _)| audience.clone()).collect()
    }

    /// Whether the store has to be told of a revocation.
    pub(crate) fn owes(&self, audience: &Audience) -> bool {
        let callers = self.callers.lock();
        callers.get(audience).is_some_and(|known| known.owes)
    }

    /// Whether the store knows everything.
    pub(crate) fn is_stored(&self, audience: &Audience) -> bool {
        let callers = self.callers.lock();
        callers.get(audience).is_none_or(Known::is_stored)
    }

    fn with<T>(&self, audience: &Audience, what: impl FnOnce(&mut Known) -> T) -> T {
        let mut callers = self.callers.lock();
        if callers.len() >= MAX_CALLERS && !callers.contains_key(audience) {
            // This is rare, and a lost hint only prevents a retry: no order is kept for it.
            callers.retain(|_, known| known.owes);
            if callers.len() >= MAX_CALLERS {
                callers.clear();
            }
            self.revoked.store(self.next().0, Ordering::Release);
        }
        what(callers.entry(audience.clone()).or_insert_with(|| Known {
            since: self.next(),
            ..Known::default()
        }))
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
    fn revoke(&mut self, now: Epoch) {
        self.since = now;
        self.believed = SafeTools::default();
        self.shared = None;
    }

    /// Whether any gateway relies on this tool.
    fn is_relied_on(&self, tool: &str) -> bool {
        let has = |seen: &Stored| seen.safe_tools.names.contains(tool);
        self.believed.names.contains(tool) || self.seen.as_ref().is_some_and(has)
    }

    fn is_stored(&self) -> bool {
        let has = |seen: &Stored| self.believed.names.is_subset(&seen.safe_tools.names);
        !self.owes && (self.believed.names.is_empty() || self.seen.as_ref().is_some_and(has))
    }
}

#[cfg(test)]
mod tests;
