//! What listings changed, until a store has it.

use std::collections::HashMap;

use super::MAX_UNSHARED;
use super::stored::{Harmless, Stored};

/// Why nothing counts any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// The server's tools changed.
    Changed,
    /// A session has a new generation.
    Generation,
}

/// What listings changed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    /// Nothing of what was known before counts any more.
    pub(super) forget: Option<Forgetting>,
    /// How often that was so.
    pub(super) forgotten: u64,
    /// Whether a tool may run twice.
    pub(super) tools: HashMap<Box<str>, bool>,
}

// === impl Changes ===

impl Changes {
    pub(super) fn forget_all(&mut self, why: Forgetting) {
        if self.forget != Some(Forgetting::Changed) {
            self.forget = Some(why);
        }
        self.forgotten += 1;
        self.tools.clear();
    }

    pub(super) fn only_take_back(&mut self) {
        self.tools.retain(|_, is_harmless| !*is_harmless);
    }

    pub(super) fn are_none(&self) -> bool {
        self.forget.is_none() && self.tools.is_empty()
    }

    pub(super) fn add(&mut self, tool: Box<str>, is_harmless: bool) {
        if self.tools.len() >= MAX_UNSHARED {
            self.forget_all(Forgetting::Changed);
        }
        self.tools.insert(tool, is_harmless);
    }

    /// Makes these changes in what a store has.
    pub(super) fn apply(&self, stored: &mut Stored) {
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

    pub(super) fn change(&self, harmless: &mut Harmless) {
        if self.forget.is_some() {
            *harmless = Harmless::default();
        }
        for (tool, is_harmless) in &self.tools {
            harmless.set(tool, *is_harmless);
        }
    }

    /// These are done; those that were added since are not.
    pub(super) fn are_done(&mut self, done: &Self) {
        if self.forgotten != done.forgotten {
            return;
        }
        self.forget = None;
        self.tools
            .retain(|tool, is_harmless| done.tools.get(tool) != Some(is_harmless));
    }
}
