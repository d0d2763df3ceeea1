//! Changes to the hints that are not stored yet.

use std::collections::HashMap;

use super::MAX_UNSHARED;
use super::stored::{SafeTools, Stored};

/// Why hints are cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgetting {
    /// The server's tools changed.
    Changed,
    /// A session has a new generation.
    Generation,
}

/// Changes to the hints.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Changes {
    /// All earlier hints are cleared.
    pub(super) forget: Option<Forgetting>,
    /// How often they were cleared.
    pub(super) forgotten: u64,
    /// Tools, and whether each is safe to repeat.
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
        self.tools.retain(|_, is_safe| !*is_safe);
    }

    pub(super) fn are_none(&self) -> bool {
        self.forget.is_none() && self.tools.is_empty()
    }

    pub(super) fn add(&mut self, tool: Box<str>, is_safe: bool) {
        if self.tools.len() >= MAX_UNSHARED {
            self.forget_all(Forgetting::Changed);
        }
        self.tools.insert(tool, is_safe);
    }

    /// Applies these changes to the stored value.
    pub(super) fn apply(&self, stored: &mut Stored) {
        // The count tells other gateways that hints were cleared. It changes only if there were
        // any, because many sessions of one caller may be recovered at the same time.
        if let Some(why) = self.forget
            && !stored.safe_tools.names.is_empty()
        {
            stored.counts.forgotten += 1;
            stored.counts.changed += u64::from(why == Forgetting::Changed);
        }
        self.change(&mut stored.safe_tools);
    }

    pub(super) fn change(&self, safe_tools: &mut SafeTools) {
        if self.forget.is_some() {
            *safe_tools = SafeTools::default();
        }
        for (tool, is_safe) in &self.tools {
            safe_tools.set(tool, *is_safe);
        }
    }

    /// Removes the changes that are now stored, and keeps those that were added since.
    pub(super) fn are_done(&mut self, done: &Self) {
        if self.forgotten != done.forgotten {
            return;
        }
        self.forget = None;
        self.tools
            .retain(|tool, is_safe| done.tools.get(tool) != Some(is_safe));
    }
}
