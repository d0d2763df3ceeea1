//! Stores sessions outside this process's memory: they are written before the client receives the id,
//! and read when a client reaches a gateway that does not know its session.
//!
//! Memory is a cache of the store. In a store that gateways share, a cached session is used for [`FRESH`];
//! then its version is checked again, or sooner if another gateway announces a change
//! ([`Announcement`]). While the store is unavailable, cached sessions are used for the configured grace, and
//! nothing is known of others: "unknown" is not "absent".

pub(crate) mod announcement;
pub(crate) mod health;
pub(crate) mod record_error;
pub(crate) mod records;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_store::sealed::{NoRandomness, OpenError, SealKeys};
use bowline_store::{
    EntryError, Key, ListedGateway, Observer, Operation, Presence, SealedEntry, Store, StoreError,
};
use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use self::record_error::BadRecord;
use crate::session_store::announcement::Announcement;
use crate::session_store::health::{Condition, StoreHealth};
use crate::telemetry::StoreMetrics;
use crate::upstream::UpstreamError;

/// How long a cached session of a shared store is used before it is checked again.
const FRESH: Duration = Duration::from_secs(2);
/// How often, within the idle time of a session, its time in the store is restarted.
const TOUCHES: u32 = 10;
/// How many ended sessions this gateway remembers by itself, in case an old state of the store is restored.
const ENDED: usize = 10_000;

/// The store of a gateway's sessions, and what it takes to use it.
#[derive(Debug)]
pub(crate) struct SessionStore {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: SealKeys,
    /// This gateway's name among those that share the store; random.
    pub(crate) me: Box<str>,
    /// How long an unused session is kept.
    idle: Duration,
    /// How long it stays in the store: longer, because not every use is written there at once. In a shared
    /// store so much longer that a gateway ends it before, see [`SessionStore::left_of_unused`].
    pub(crate) ttl: Duration,
    health: StoreHealth,
    pub(crate) counts: StoreMetrics,
    /// What was last checked before this must be checked again; milliseconds, as [`SessionStore::now`].
    doubted: AtomicU64,
    ended: Mutex<EndedSessions>,
    counted: Mutex<SessionCounts>,
    pub(crate) tracker: TaskTracker,
}

/// How long sessions are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionTimes {
    /// How long an unused session is kept.
    pub(crate) idle: Duration,
    /// How long cached sessions are used while the store is unavailable.
    pub(crate) grace: Duration,
}

/// The number of sessions in a shared store.
#[derive(Debug, Default)]
struct SessionCounts {
    /// The number at the last count.
    there: usize,
    /// How many were opened and how many ended here since then.
    opened: usize,
    ended: usize,
}

/// The sessions that ended last.
#[derive(Debug, Default)]
struct EndedSessions {
    ids: HashSet<SessionId>,
    order: VecDeque<SessionId>,
}

/// Why a session cannot be read or written.
#[derive(Debug, Error)]
pub(crate) enum PersistenceError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("a session's record is {0}")]
    Sealed(#[from] OpenError),
    #[error(transparent)]
    Record(#[from] BadRecord),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("too many gateways write to one session at once")]
    Contended,
    /// No endpoint of the session's server is available.
    #[error("its server is unavailable: {0}")]
    Nowhere(UpstreamError),
}

// === impl SessionStore ===

impl SessionStore {
    pub(crate) fn new(
        store: Arc<Store>,
        keys: SealKeys,
        me: Box<str>,
        times: SessionTimes,
        tracker: TaskTracker,
        counts: StoreMetrics,
    ) -> Self {
        let SessionTimes { idle, grace } = times;
        let ttl = match *store {
            Store::Redis(_) => 2 * idle,
            Store::Memory(_) | Store::File(_) => idle + idle / TOUCHES,
        };
        Self {
            store,
            keys,
            me,
            idle,
            ttl,
            health: StoreHealth::new(grace),
            counts,
            doubted: AtomicU64::new(0),
            ended: Mutex::default(),
            counted: Mutex::default(),
            tracker,
        }
    }

    /// Whether other gateways may use the same store.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(*self.store, Store::Redis(_))
    }

    /// How often a session's time in the store is restarted while it is used.
    pub(crate) fn touch_every(&self) -> Duration {
        self.idle / TOUCHES
    }

    /// Notes a use of something whose time in the store was last restarted at `touched`. If that is due again, it is
    /// for the caller to do; this is the time of before, for when that fails.
    pub(crate) fn due_touch(&self, touched: &AtomicU64) -> Option<u64> {
        let (now, before) = (self.now(), touched.load(Ordering::Relaxed));
        let every = u64::try_from(self.touch_every().as_millis()).unwrap_or(u64::MAX);
        let is_due = before == 0 || now >= before.saturating_add(every);
        if !is_due || !self.is_reachable() {
            return None;
        }
        touched.store(now.max(1), Ordering::Relaxed);
        Some(before)
    }

    /// The most that is left of a session's time in the store if no gateway has used it for its idle time:
    /// the last use may not have been written.
    pub(crate) fn left_of_unused(&self) -> Duration {
        self.ttl.saturating_sub(self.idle + self.touch_every())
    }

    /// After how long without a use here the last gateway to use a session treats it as unused.
    pub(crate) fn unused_after(&self) -> Duration {
        self.idle + 2 * self.touch_every()
    }

    /// The ids of the seal keys, newest first.
    pub(crate) fn seal_keys(&self) -> Vec<String> {
        self.keys.ids()
    }

    /// Whether the store answered when it was last asked.
    pub(crate) fn is_reachable(&self) -> bool {
        self.health.is_reachable()
    }

    /// The condition of the store.
    pub(crate) fn condition(&self) -> Condition {
        self.health.condition()
    }

    /// Runs an operation of the store and records its result.
    pub(crate) async fn ask<T>(
        &self,
        operation: Operation,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = asking.await;
        self.note(operation, answer.as_ref().err(), began.elapsed());
        answer
    }

    /// Whether this id may be one of something in one of these scopes, with one question to the store.
    pub(crate) async fn may_know(
        &self,
        id: &SessionId,
        scopes: impl Iterator<Item = &str>,
    ) -> Result<bool, PersistenceError> {
        let keys: Vec<Key> = scopes.map(|scope| Key::of(scope, id)).collect();
        let asking = self.store.may_have_any(&keys);
        Ok(!self.has_ended(id) && self.ask(Operation::Load, asking).await?)
    }

    /// What is sealed under this key; operations on it are counted.
    pub(crate) fn entry<'a>(&'a self, key: &'a Key) -> SealedEntry<'a> {
        SealedEntry::new(&self.store, &self.keys, key).observed_by(self)
    }

    /// Removes this gateway from those present.
    pub(crate) async fn leave(&self) {
        let leaving = self.store.leave(&self.me);
        if let Err(error) = self.ask(Operation::Leave, leaving).await {
            tracing::debug!(%error, "departure not announced");
        }
    }

    /// Asks the store whether it answers.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.ask(Operation::Ping, self.store.ping()).await
    }

    /// Lists this gateway, and makes it present for as long as `holds`.
    pub(crate) async fn appear(&self, me: &Presence, holds: Duration) -> Result<(), StoreError> {
        let appearing = self.store.appear(me, holds);
        self.ask(Operation::Appear, appearing).await
    }

    /// Every gateway that is listed, present or not.
    pub(crate) async fn gateways(&self) -> Result<Vec<ListedGateway>, StoreError> {
        self.ask(Operation::Gateways, self.store.gateways()).await
    }

    /// Takes a gateway from the list that is gone.
    pub(crate) async fn forget(&self, gone: &ListedGateway) {
        let forgetting = self.store.forget(gone);
        if let Err(error) = self.ask(Operation::Leave, forgetting).await {
            tracing::debug!(%error, "a gateway that is gone is still listed");
        }
    }

    /// The number of sessions of all gateways on the store. It is exact if this gateway has the store to
    /// itself; otherwise it is the last count, adjusted by what was opened and ended here since.
    pub(crate) fn sessions(&self) -> usize {
        self.store.cached_count().unwrap_or_else(|| {
            let counted = self.counted.lock();
            (counted.there + counted.opened).saturating_sub(counted.ended)
        })
    }

    /// Counts the sessions of a shared store.
    pub(crate) async fn count_sessions(&self) -> Result<(), StoreError> {
        if !self.is_shared() {
            return Ok(());
        }
        let (opened, ended) = {
            let counted = self.counted.lock();
            (counted.opened, counted.ended)
        };
        let there = self.ask(Operation::Count, self.store.count()).await?;
        let mut counted = self.counted.lock();
        // Sessions opened or ended during the count may count twice until the next one.
        counted.there = there;
        counted.opened -= opened;
        counted.ended -= ended;
        Ok(())
    }

    /// Counts a session that was written.
    pub(crate) fn note_opened(&self) {
        self.counted.lock().opened += 1;
    }

    /// Counts a session that this gateway removed from the store.
    pub(crate) fn note_ended(&self) {
        self.counted.lock().ended += 1;
    }

    /// Makes every cached session be checked again before its next use.
    fn doubt_all(&self) {
        self.doubted.store(self.now() + 1, Ordering::Relaxed);
    }

    /// Announcements are received from now on; earlier ones may have been missed.
    pub(crate) fn hears_again(&self) {
        self.health.hears_again();
        self.doubt_all();
    }

    /// Announcements may be missed from now on.
    pub(crate) fn hears_no_more(&self) {
        self.health.hears_no_more();
        self.doubt_all();
    }

    /// Whether a session last seen at `seen` may be used without asking the store: never while the others' words
    /// are not heard, because one of them may have ended it.
    pub(crate) fn is_fresh(&self, seen: u64) -> bool {
        let fresh_until = seen + FRESH.as_millis() as u64;
        let is_doubted = seen < self.doubted.load(Ordering::Relaxed) || !self.health.hears();
        !self.is_shared() || (!is_doubted && self.now() < fresh_until)
    }

    /// Whether a session last seen at `seen` may be used while the store is unavailable.
    pub(crate) fn is_within_grace(&self, seen: u64) -> bool {
        self.health.is_within_grace(seen)
    }

    /// Whether the store would still remember an end that happened after a session was last seen.
    pub(crate) fn would_remember(&self, seen: u64, remembered: Duration) -> bool {
        self.health.is_known_since(seen, remembered)
    }

    /// Whether a session whose last use was written at `touched` has not expired.
    pub(crate) fn would_keep(&self, touched: u64) -> bool {
        let kept = self.idle + self.touch_every();
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        self.now() < touched.saturating_add(kept)
    }

    /// Remembers that a session has ended.
    pub(crate) fn remember_end(&self, id: &SessionId) {
        let mut ended = self.ended.lock();
        if ended.ids.insert(*id) {
            ended.order.push_back(*id);
            if ended.order.len() > ENDED
                && let Some(oldest) = ended.order.pop_front()
            {
                ended.ids.remove(&oldest);
            }
        }
    }

    /// Whether this gateway remembers that a session has ended.
    pub(crate) fn has_ended(&self, id: &SessionId) -> bool {
        self.ended.lock().ids.contains(id)
    }

    /// Sends an announcement to the other gateways in the background.
    pub(crate) fn announce(self: &Arc<Self>, announcement: Announcement) {
        if !self.is_shared() {
            return;
        }
        let session_store = Arc::clone(self);
        self.tracker.spawn(async move {
            let Some(sealed) = announcement.sealed(&session_store) else {
                return;
            };
            let announcing = session_store.store.announce(&sealed);
            if let Err(error) = session_store.ask(Operation::Announce, announcing).await {
                tracing::debug!(%error, "announcement failed");
            }
        });
    }

    /// Milliseconds since this gateway started, at least one.
    pub(crate) fn now(&self) -> u64 {
        self.health.now()
    }
}

impl Observer for SessionStore {
    fn note(&self, operation: Operation, error: Option<&StoreError>, took: Duration) {
        self.counts.asked(operation, error, took);
        self.health.note(operation, error);
    }
}

// === impl PersistenceError ===

impl PersistenceError {
    /// Whether another attempt may succeed.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Store(_) | Self::Contended | Self::Nowhere(_) => true,
            Self::Sealed(_) | Self::Record(_) | Self::NoRandomness(_) => false,
        }
    }
}

impl From<EntryError> for PersistenceError {
    fn from(error: EntryError) -> Self {
        match error {
            EntryError::Store(error) => Self::Store(error),
            EntryError::Sealed(error) => Self::Sealed(error),
            EntryError::NoRandomness(error) => Self::NoRandomness(error),
            EntryError::Contended => Self::Contended,
        }
    }
}
