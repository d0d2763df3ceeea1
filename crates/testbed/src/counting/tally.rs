//! What ran, over all replicas, and what they have in common.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Every execution by key, and what the tool `flip` is. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    ran: Arc<Mutex<HashMap<String, Vec<Execution>>>>,
    flip: Arc<Flip>,
}

/// One execution of a tool, or of another request that has a `key` in its `_meta`.
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
    /// When it was over, if it was not stopped.
    pub finished: Option<Instant>,
    /// Whether it was the tool `flip` while that was destructive.
    pub destructive: bool,
}

/// What the tool `flip` is: the same at all replicas, as they are one server.
#[derive(Debug, Default)]
struct Flip {
    /// What listings say.
    listed_destructive: AtomicBool,
    /// What it does. A server can do something else than it says for a while: nobody is told at once.
    destructive: AtomicBool,
}

impl Execution {
    /// It begins now.
    pub(super) fn new(replica: &str, session: &str, tool: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            session: session.to_owned(),
            tool: tool.to_owned(),
            at: Instant::now(),
            finished: None,
            destructive: false,
        }
    }
}

impl Tally {
    /// How often something ran under this key.
    #[must_use]
    pub fn executions(&self, key: &str) -> usize {
        self.ran.lock().get(key).map_or(0, Vec::len)
    }

    /// Everything that ran, by key.
    #[must_use]
    pub fn all(&self) -> HashMap<String, Vec<Execution>> {
        self.ran.lock().clone()
    }

    /// From now on listings say that `flip` is destructive, or that it is read-only.
    pub fn list_flip(&self, destructive: bool) {
        self.flip
            .listed_destructive
            .store(destructive, Ordering::SeqCst);
    }

    /// From now on `flip` is destructive, or not.
    pub fn make_flip(&self, destructive: bool) {
        self.flip.destructive.store(destructive, Ordering::SeqCst);
    }

    /// What listings say of `flip`.
    #[must_use]
    pub fn lists_flip_as_destructive(&self) -> bool {
        self.flip.listed_destructive.load(Ordering::SeqCst)
    }

    /// Counts an execution; how many there are now.
    pub(super) fn add(&self, key: &str, mut execution: Execution) -> usize {
        let destructive = self.flip.destructive.load(Ordering::SeqCst);
        execution.destructive = destructive && execution.tool == "flip";
        let mut all = self.ran.lock();
        let under_key = all.entry(key.to_owned()).or_default();
        under_key.push(execution);
        under_key.len()
    }

    /// The execution that was counted as this one is over.
    pub(super) fn finish(&self, key: &str, number: usize) {
        if let Some(all) = self.ran.lock().get_mut(key)
            && let Some(execution) = all.get_mut(number.saturating_sub(1))
        {
            execution.finished = Some(Instant::now());
        }
    }
}
