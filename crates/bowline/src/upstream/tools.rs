//! What is known of an upstream's tools: which of them say that they may run twice.
//!
//! Learnt from listings that pass through, per caller: what another caller was shown says nothing of
//! what this one may rely on. Bounded, and forgotten when the server says that its tools changed.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use serde::Deserialize;

use crate::session::Caller;

/// The most callers, and tools of each, that are remembered.
const MAX_CALLERS: usize = 1000;
const MAX_TOOLS: usize = 5000;

/// Tools that may run twice, by caller.
#[derive(Debug, Default)]
pub(crate) struct Tools(Mutex<HashMap<Caller, HashSet<Box<str>>>>);

impl Tools {
    /// Takes the result of `tools/list` (JSON text).
    pub(crate) fn learn(&self, caller: &Caller, result: &str) {
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
            return;
        };
        let mut known = self.0.lock();
        if known.len() >= MAX_CALLERS && !known.contains_key(caller) {
            // Rare, and forgetting costs only replays: no order is kept for it.
            known.clear();
        }
        let harmless = known.entry(caller.clone()).or_default();
        for tool in listing.tools {
            let Annotations {
                read_only_hint,
                idempotent_hint,
            } = tool.annotations;
            if !read_only_hint && !idempotent_hint {
                harmless.remove(&tool.name);
            } else if harmless.len() < MAX_TOOLS {
                harmless.insert(tool.name);
            }
        }
    }

    /// Whether a tool may run twice, as far as this caller was told.
    pub(crate) fn is_harmless(&self, caller: &Caller, tool: &str) -> bool {
        self.0
            .lock()
            .get(caller)
            .is_some_and(|harmless| harmless.contains(tool))
    }

    /// The server's tools changed.
    pub(crate) fn forget(&self, caller: &Caller) {
        self.0.lock().remove(caller);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_known_per_caller_until_they_change() {
        let tools = Tools::default();
        let (ann, bob) = (Caller::Named("ann".parse().unwrap()), Caller::Local);
        tools.learn(&ann, r#"{"tools":[{"name":"r","annotations":{"readOnlyHint":true}},{"name":"i","annotations":{"idempotentHint":true,"title":"x"}},{"name":"w"},{"name":"d","annotations":{"destructiveHint":true}}]}"#);
        let harmless =
            |caller: &Caller| ["r", "i", "w", "d"].map(|tool| tools.is_harmless(caller, tool));
        assert_eq!(harmless(&ann), [true, true, false, false]);
        assert_eq!(harmless(&bob), [false; 4]);
        tools.learn(&ann, r#"{"tools":[{"name":"r"}]}"#);
        assert_eq!(
            harmless(&ann),
            [false, true, false, false],
            "a later listing counts"
        );
        tools.forget(&ann);
        assert_eq!(harmless(&ann), [false; 4]);
        tools.learn(&ann, "nonsense");
    }
}
