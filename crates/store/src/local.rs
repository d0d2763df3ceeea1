//! Claims, announcements and presence for the stores that only one process uses. None of it needs to
//! outlive the process.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

use super::{ListedGateway, ListenerEvent, Presence, SealedAnnouncement};

/// How far a listener may fall behind before it misses something.
const BACKLOG: usize = 1024;

/// Claims, announcements and presence within one process.
#[derive(Debug)]
pub(super) struct Local {
    claims: Mutex<HashMap<String, Claim>>,
    gateways: Mutex<BTreeMap<String, (Presence, Instant)>>,
    announcements: broadcast::Sender<SealedAnnouncement>,
    /// The last number of any key.
    numbers: AtomicU64,
}

#[derive(Debug)]
struct Claim {
    holder: String,
    until: Instant,
}

/// Listens within one process.
#[derive(Debug)]
pub struct LocalListener {
    announcements: broadcast::Receiver<SealedAnnouncement>,
    /// Whether it has reported that the channel is whole.
    has_reported: bool,
}

// === impl Local ===

impl Local {
    pub(super) fn claim(&self, name: &str, holder: &str, ttl: Duration) -> bool {
        let mut claims = self.claims.lock();
        let now = Instant::now();
        claims.retain(|_, claim| now < claim.until);
        if claims.get(name).is_some_and(|claim| claim.holder != holder) {
            return false;
        }
        let claim = Claim {
            holder: holder.to_owned(),
            until: now + ttl,
        };
        claims.insert(name.to_owned(), claim);
        true
    }

    pub(super) fn release(&self, name: &str, holder: &str) -> bool {
        let mut claims = self.claims.lock();
        let now = Instant::now();
        let held = |claim: &Claim| claim.holder == holder && now < claim.until;
        claims.get(name).is_some_and(held) && claims.remove(name).is_some()
    }

    pub(super) fn next_number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn last_number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    pub(super) fn announce(&self, announcement: &SealedAnnouncement) {
        // No listener is no failure.
        self.announcements.send(announcement.clone()).ok();
    }

    pub(super) fn listen(&self) -> LocalListener {
        LocalListener {
            announcements: self.announcements.subscribe(),
            has_reported: false,
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

    pub(super) fn gateways(&self) -> Vec<ListedGateway> {
        let now = Instant::now();
        let mut gateways = self.gateways.lock();
        gateways.retain(|_, (_, until)| now < *until);
        let listed = gateways
            .iter()
            .map(|(id, (presence, until))| ListedGateway {
                presence: Some(presence.clone()),
                left: until.duration_since(now),
                name: id.as_str().into(),
                said: Box::default(),
            });
        listed.collect()
    }
}

impl Default for Local {
    fn default() -> Self {
        Self {
            claims: Mutex::default(),
            gateways: Mutex::default(),
            announcements: broadcast::Sender::new(BACKLOG),
            numbers: AtomicU64::new(0),
        }
    }
}

// === impl LocalListener ===

impl LocalListener {
    pub(super) async fn next(&mut self) -> ListenerEvent {
        if !std::mem::replace(&mut self.has_reported, true) {
            return ListenerEvent::Whole;
        }
        match self.announcements.recv().await {
            Ok(announcement) => ListenerEvent::Announcement(announcement),
            Err(RecvError::Lagged(_)) => ListenerEvent::Whole,
            // The store is gone, and with it every possible sender.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
