//! What ran, over all replicas.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Every execution by key. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<HashMap<String, Vec<Execution>>>>);

/// One execution of a tool.
#[derive(Debug, Clone)]
pub struct Execution {
    /// Where it ran.
    pub replica: String,
    /// In which of that replica's sessions.
    pub session: String,
    /// What ran.
    pub tool: String,
    /// When it began.
    pub at: Instant,
}

impl Tally {
    /// How often something ran under this key.
    #[must_use]
    pub fn executions(&self, key: &str) -> usize {
        self.0.lock().get(key).map_or(0, Vec::len)
    }

    /// Everything that ran, by key.
    #[must_use]
    pub fn all(&self) -> HashMap<String, Vec<Execution>> {
        self.0.lock().clone()
    }

    /// Counts an execution; how many there are now.
    pub(super) fn add(&self, key: &str, execution: Execution) -> usize {
        let mut all = self.0.lock();
        let under_key = all.entry(key.to_owned()).or_default();
        under_key.push(execution);
        under_key.len()
    }
}
