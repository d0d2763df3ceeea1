//! The demo's sessions: what each remembers, and when it is forgotten.
//!
//! There is no timer: idle sessions are refused when they are asked for, and removed when another
//! one is opened, so there are never more than [`MOST`].

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::rand;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ledger::Ledger;

/// The most sessions; one more, and the one that rested longest is forgotten.
pub(super) const MOST: usize = 1000;

/// How long a session is kept after its last use. Longer than the gateway keeps its own, so that
/// it is the gateway that ends them.
pub(super) const IDLE: Duration = Duration::from_secs(60 * 60);

/// All sessions, by id.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    entries: Mutex<HashMap<String, Entry>>,
    ledger: Option<Arc<Ledger>>,
}

/// What one session remembers.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) count: u64,
    pub(super) notes: Vec<String>,
    /// Where it counts, if not in its own memory.
    pub(super) ledger: Option<Arc<Ledger>>,
}

#[derive(Debug)]
struct Entry {
    session: Session,
    last_used: Instant,
}

// === impl Sessions ===

impl Sessions {
    /// Sessions that count in a ledger.
    pub(super) fn counting_in(ledger: Ledger) -> Self {
        Self {
            ledger: Some(Arc::new(ledger)),
            ..Self::default()
        }
    }

    /// Begins a session; the id cannot be guessed. It fails when there is no randomness to be had.
    pub(super) fn open(&self) -> Result<String, Unspecified> {
        let id = random_id()?;
        let entry = Entry {
            session: Session {
                ledger: self.ledger.clone(),
                ..Session::default()
            },
            last_used: Instant::now(),
        };
        let mut entries = self.entries.lock();
        entries.retain(|_, entry| !entry.is_idle());
        if entries.len() >= MOST {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.last_used);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                entries.remove(&oldest);
            }
        }
        entries.insert(id.clone(), entry);
        Ok(id)
    }

    /// Uses a session; `None` if there is none of this id.
    pub(super) fn with<T>(&self, id: &str, using: impl FnOnce(&mut Session) -> T) -> Option<T> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(id).filter(|entry| !entry.is_idle())?;
        entry.last_used = Instant::now();
        Some(using(&mut entry.session))
    }

    /// Ends a session; `false` if there was none of this id.
    pub(super) fn close(&self, id: &str) -> bool {
        let removed = self.entries.lock().remove(id);
        removed.is_some_and(|entry| !entry.is_idle())
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.lock().len()
    }
}

// === impl Entry ===

impl Entry {
    fn is_idle(&self) -> bool {
        self.last_used.elapsed() >= IDLE
    }
}

pub(super) fn random_id() -> Result<String, Unspecified> {
    let mut bytes = [0; 16];
    rand::fill(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    }))
}
