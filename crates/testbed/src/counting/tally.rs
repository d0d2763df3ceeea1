//! What ran on all replicas, and the state that they share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

/// Every execution by key, and the state of the tool `flip`. Clones share it.
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
    /// When it ended, unless it was stopped.
    pub finished: Option<Instant>,
    /// Whether it was the tool `flip` or `turn` while that was destructive.
    pub destructive: bool,
}

/// The state of the tool `flip`: the same at all replicas, because they are one server.
#[derive(Debug, Default)]
struct Flip {
    /// The annotation in listings.
    listed_destructive: AtomicBool,
    /// The actual behaviour. It may differ from the listing for a while, because clients are not
    /// notified at once.
    destructive: AtomicBool,
}

impl Execution {
    /// An execution that starts now.
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

    /// Makes listings say that `flip` is destructive, or that it is read-only.
    pub fn list_flip(&self, destructive: bool) {
        self.flip
            .listed_destructive
            .store(destructive, Ordering::SeqCst);
    }

    /// Makes `flip` destructive, or not.
    pub fn make_flip(&self, destructive: bool) {
        self.flip.destructive.store(destructive, Ordering::SeqCst);
    }

    /// The annotation of `flip` in listings.
    #[must_use]
    pub fn lists_flip_as_destructive(&self) -> bool {
        self.flip.listed_destructive.load(Ordering::SeqCst)
    }

    /// Counts an execution. Returns the new count.
    pub(super) fn add(&self, key: &str, mut execution: Execution) -> usize {
        let destructive = self.flip.destructive.load(Ordering::SeqCst);
        execution.destructive |= destructive && execution.tool == "flip";
        let mut all = self.ran.lock();
        let under_key = all.entry(key.to_owned()).or_default();
        under_key.push(execution);
        under_key.len()
    }

    /// Marks this execution as ended.
    pub(super) fn finish(&self, key: &str, number: usize) {
        if let Some(all) = self.ran.lock().get_mut(key)
            && let Some(execution) = all.get_mut(number.saturating_sub(1))
        {
            execution.finished = Some(Instant::now());
        }
    }
}
