//! What gateways tell each other, where there is only one: leases, announcements and presence of
//! the stores that one process holds. None of it needs to outlive the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::{Announcement, Heard, Presence};

/// How far a listener may fall behind before it misses something.
const BACKLOG: usize = 1024;

/// Leases, announcements and presence within one process.
#[derive(Debug)]
pub(super) struct Local {
    leases: Mutex<HashMap<String, Lease>>,
    gateways: Mutex<BTreeMap<String, (Presence, Instant)>>,
    announcements: broadcast::Sender<Announcement>,
    /// The last number of whichever key.
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Lease {
    holder: String,
    until: Instant,
}

/// Listens within one process.
#[derive(Debug)]
pub(crate) struct LocalListener {
    announcements: broadcast::Receiver<Announcement>,
    /// Whether it knows that it is whole.
    told: bool,
}

// === impl Local ===

impl Local {
    pub(super) fn lease(&self, name: &str, holder: &str, ttl: Duration) -> bool {
        let mut leases = self.leases.lock();
        let now = Instant::now();
        leases.retain(|_, lease| now < lease.until);
        if leases.get(name).is_some_and(|lease| lease.holder != holder) {
            return false;
        }
        let lease = Lease {
            holder: holder.to_owned(),
            until: now + ttl,
        };
        leases.insert(name.to_owned(), lease);
        true
    }

    pub(super) fn release(&self, name: &str, holder: &str) -> bool {
        let mut leases = self.leases.lock();
        let now = Instant::now();
        let held = |lease: &Lease| lease.holder == holder && now < lease.until;
        leases.get(name).is_some_and(held) && leases.remove(name).is_some()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn last_number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    pub(super) fn announce(&self, announcement: &Announcement) {
        // That nobody listens is no failure.
        self.announcements.send(announcement.clone()).ok();
    }

    pub(super) fn listen(&self) -> LocalListener {
        LocalListener {
            announcements: self.announcements.subscribe(),
            told: false,
        }
    }

    pub(super) fn appear(&self, me: &Presence, ttl: Duration) {
        let until = Instant::now() + ttl;
        let mut gateways = self.gateways.lock();
        gateways.insert(me.id.clone(), (me.clone(), until));
    }

    pub(super) fn leave(&self, id: &str) {
        self.gateways.lock().remove(id);
    }

    pub(super) fn gateways(&self) -> Vec<Presence> {
        let now = Instant::now();
        let mut gateways = self.gateways.lock();
        gateways.retain(|_, (_, until)| now < *until);
        gateways
            .values()
            .map(|(presence, _)| presence.clone())
            .collect()
    }
}

impl Default for Local {
    fn default() -> Self {
        Self {
            leases: Mutex::default(),
            gateways: Mutex::default(),
            announcements: broadcast::Sender::new(BACKLOG),
            numbers: AtomicU64::new(0),
        }
    }
}

// === impl LocalListener ===

impl LocalListener {
    pub(super) async fn next(&mut self) -> Heard {
        if !std::mem::replace(&mut self.told, true) {
            return Heard::Whole;
        }
        match self.announcements.recv().await {
            Ok(announcement) => Heard::Announcement(announcement),
            Err(RecvError::Lagged(_)) => Heard::Whole,
            // The store is gone, and with it everybody who could announce.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
