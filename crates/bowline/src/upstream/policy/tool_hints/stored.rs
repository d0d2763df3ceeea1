//! What the store has about one caller's tools.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{MAX_NAMES, MAX_TOOLS};

/// What the store has about one caller's tools.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// The identity of the server, because another may be configured under its name now.
    pub(super) server: Box<str>,
    pub(super) counts: Counts,
    /// The tools that some gateway relies on. An older name is in stored records.
    #[serde(rename = "harmless")]
    pub(super) safe_tools: SafeTools,
}

/// How often hints were revoked. Earlier releases counted the revocations at new generations in `forgotten` alone.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(super) forgotten: u64,
    pub(super) changed: u64,
}

/// The names of tools that are safe to repeat.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeSet<Box<str>>", into = "BTreeSet<Box<str>>")]
pub(crate) struct SafeTools {
    pub(super) names: BTreeSet<Box<str>>,
    pub(super) length: usize,
}

// === impl Stored ===

impl Stored {
    /// The same value for this server: without the hints if they are about another one.
    pub(crate) fn about(&self, server: &str) -> Self {
        let is_it = *self.server == *server;
        Self {
            server: server.into(),
            counts: self.counts,
            safe_tools: match is_it {
                true => self.safe_tools.clone(),
                false => SafeTools::default(),
            },
        }
    }

    /// Counts a revocation, if any gateway relies on anything.
    pub(super) fn revoke(&mut self) {
        if !self.safe_tools.names.is_empty() {
            self.counts.forgotten += 1;
            self.counts.changed += 1;
            self.safe_tools = SafeTools::default();
        }
    }
}

// === impl SafeTools ===

impl SafeTools {
    /// Leaves out what the others do not have.
    pub(super) fn keep_only(&mut self, others: &Self) {
        let length = &mut self.length;
        self.names.retain(|name| {
            let stays = others.names.contains(name);
            *length -= if stays { 0 } else { name.len() };
            stays
        });
    }

    pub(super) fn set(&mut self, name: &str, is_safe: bool) {
        if !is_safe {
            let was_known = self.names.remove(name);
            self.length -= if was_known { name.len() } else { 0 };
            return;
        }
        let has_room = !self.is_full() && name.len() <= MAX_NAMES;
        let is_new = has_room && self.names.insert(name.into());
        self.length += if is_new { name.len() } else { 0 };
    }

    /// Whether no other name is remembered. The last one may be longer than the room that was left.
    pub(super) fn is_full(&self) -> bool {
        self.names.len() >= MAX_TOOLS || self.length >= MAX_NAMES
    }
}

impl From<BTreeSet<Box<str>>> for SafeTools {
    fn from(names: BTreeSet<Box<str>>) -> Self {
        let length = names.iter().map(|name| name.len()).sum();
        Self { names, length }
    }
}

impl From<SafeTools> for BTreeSet<Box<str>> {
    fn from(safe_tools: SafeTools) -> Self {
        safe_tools.names
    }
}
