//! Keeping sessions beyond this process's memory: written before a client hears of them, and read
//! where a client comes to a gateway that does not know its session.
//!
//! What lies in memory is a near cache of what lies in the store. In a store that gateways share it
//! is believed for [`FRESH`]; then its version is looked at again, or sooner if another gateway
//! announces a change ([`News`](super::news)). While the store cannot be reached it is believed for
//! the configured grace, and nothing else is known: "I can't know" is not "no".

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::news::News;
use super::standing::{Condition, Standing};
use super::written::BadRecord;
use crate::store::sealed::{NoRandomness, OpenError, SealKeys};
use crate::store::{Operation, Presence, Present, Store, StoreError};
use crate::telemetry::StoreCounts;
use crate::upstream::UpstreamError;

/// How long an entry of a shared store is believed.
const FRESH: Duration = Duration::from_secs(2);
/// How often in the time that an unused session is kept its time in the store is begun anew.
const TOUCHES: u32 = 10;
/// How many ended sessions this gateway remembers by itself, should somebody put one back.
const ENDED: usize = 10_000;

/// The store of a gateway's sessions, and what it takes to use it.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) store: Arc<Store>,
    pub(crate) keys: SealKeys,
    /// This gateway's name among those that share the store; random.
    pub(crate) me: Box<str>,
    /// How long a session that nobody uses is kept.
    idle: Duration,
    /// How long it stays in the store: longer, as not every use is told there at once. Where gateways
    /// share it, so much longer that one of them ends it before, see [`Keeper::left_of_unused`].
    pub(super) ttl: Duration,
    standing: Standing,
    pub(super) counts: StoreCounts,
    /// Whatever was last looked at before this is doubted; milliseconds, as [`Keeper::now`].
    doubted: AtomicU64,
    ended: Mutex<Ended>,
    counted: Mutex<Counted>,
    pub(super) tracker: TaskTracker,
}

/// How many sessions are in a store that gateways share.
#[derive(Debug, Default)]
struct Counted {
    /// When it was last counted there.
    there: usize,
    /// How many were opened here since, and how many ended.
    opened: usize,
    ended: usize,
}

/// Sessions that have ended, the latest ones.
#[derive(Debug, Default)]
struct Ended {
    ids: HashSet<SessionId>,
    order: VecDeque<SessionId>,
}

/// Why nothing can be said of a session.
#[derive(Debug, Error)]
pub(crate) enum Unsure {
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
    /// Where the session lives is not known here.
    #[error("its server cannot be used: {0}")]
    Nowhere(UpstreamError),
}

// === impl Keeper ===

impl Keeper {
    pub(crate) fn new(
        (store, keys): (Arc<Store>, SealKeys),
        me: Box<str>,
        (idle, grace): (Duration, Duration),
        (tracker, counts): (TaskTracker, StoreCounts),
    ) -> Self {
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
            standing: Standing::new(grace),
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

    /// How often a session's time in the store is begun anew while it is used.
    pub(super) fn touch_every(&self) -> Duration {
        self.idle / TOUCHES
    }

    /// What is left of a session's time in the store, at the most, if no gateway has used it for as
    /// long as it is kept: the last use may not have been told.
    pub(super) fn left_of_unused(&self) -> Duration {
        self.ttl.saturating_sub(self.idle + self.touch_every())
    }

    /// After which time without a use here the last gateway to use a session finds it unused.
    pub(crate) fn unused_after(&self) -> Duration {
        self.idle + 2 * self.touch_every()
    }

    /// How the keys are called among gateways, newest first.
    pub(crate) fn seal_keys(&self) -> Vec<String> {
        self.keys.ids()
    }

    /// Whether the store answered when it was last asked.
    pub(crate) fn is_reachable(&self) -> bool {
        self.standing.is_reachable()
    }

    /// How the store stands.
    pub(crate) fn condition(&self) -> Condition {
        self.standing.condition()
    }

    /// Asks the store something, and notes how it took that.
    pub(super) async fn ask<T>(
        &self,
        operation: Operation,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let answer = asking.await;
        let error = answer.as_ref().err();
        self.counts.asked(operation, error, began.elapsed());
        self.standing.note(operation, error);
        answer
    }

    /// Tells the other gateways that this one is there no longer.
    pub(crate) async fn leave(&self) {
        let leaving = self.store.leave(&self.me);
        if let Err(error) = self.ask(Operation::Leave, leaving).await {
            tracing::debug!(%error, "other gateways were not told of the stop");
        }
    }

    /// Asks the store whether it is there.
    pub(crate) async fn ping(&self) -> Result<(), StoreError> {
        self.ask(Operation::Ping, self.store.ping()).await
    }

    /// Says that this gateway is there, for as long as `holds`.
    pub(crate) async fn appear(&self, me: &Presence, holds: Duration) -> Result<(), StoreError> {
        let appearing = self.store.appear(me, holds);
        self.ask(Operation::Appear, appearing).await
    }

    /// Every gateway that is there.
    pub(crate) async fn gateways(&self) -> Result<Present, StoreError> {
        self.ask(Operation::Gateways, self.store.gateways()).await
    }

    /// How many sessions there are, of all gateways on the store: exactly where this one has it to
    /// itself, else as it was last counted there and with what happened here since.
    pub(super) fn sessions(&self) -> usize {
        self.store.count_at_hand().unwrap_or_else(|| {
            let counted = self.counted.lock();
            (counted.there + counted.opened).saturating_sub(counted.ended)
        })
    }

    /// Counts the sessions of a store that gateways share.
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
        // What happened while it was counted may count twice, until the next time.
        counted.there = there;
        counted.opened -= opened;
        counted.ended -= ended;
        Ok(())
    }

    /// A session was written.
    pub(super) fn note_opened(&self) {
        self.counted.lock().opened += 1;
    }

    /// A session was taken out of the store, by this gateway.
    pub(super) fn note_ended(&self) {
        self.counted.lock().ended += 1;
    }

    /// From now on everything at hand is looked at again before it is believed.
    fn doubt_all(&self) {
        self.doubted.store(self.now() + 1, Ordering::Relaxed);
    }

    /// From now on announcements are heard; whatever was announced before may have been missed.
    pub(crate) fn hears_again(&self) {
        self.standing.hears_again();
        self.doubt_all();
    }

    /// From now on announcements may be missed.
    pub(crate) fn hears_no_more(&self) {
        self.standing.hears_no_more();
        self.doubt_all();
    }

    /// Whether what was last seen then may be believed without asking.
    pub(super) fn is_fresh(&self, seen: u64) -> bool {
        let fresh_until = seen + FRESH.as_millis() as u64;
        let is_doubted = seen < self.doubted.load(Ordering::Relaxed);
        !self.is_shared() || (!is_doubted && self.now() < fresh_until)
    }

    /// Whether what was last seen then may be believed although the store cannot be asked.
    pub(super) fn is_within_grace(&self, seen: u64) -> bool {
        self.standing.is_within_grace(seen)
    }

    /// Whether an end would be remembered in the store that came after a session was last seen there.
    pub(super) fn would_remember(&self, seen: u64, remembered: Duration) -> bool {
        self.standing.is_known_since(seen, remembered)
    }

    /// Whether a session is kept of which this was the last use that the store was told of.
    pub(super) fn would_keep(&self, touched: u64) -> bool {
        let kept = self.idle + self.touch_every();
        let kept = u64::try_from(kept.as_millis()).unwrap_or(u64::MAX);
        self.now() < touched.saturating_add(kept)
    }

    /// Remembers that a session has ended.
    pub(super) fn remember_end(&self, id: &SessionId) {
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
    pub(super) fn has_ended(&self, id: &SessionId) -> bool {
        self.ended.lock().ids.contains(id)
    }

    /// Tells the other gateways, without waiting for it.
    pub(crate) fn announce(self: &Arc<Self>, news: News) {
        if !self.is_shared() {
            return;
        }
        let keeper = Arc::clone(self);
        self.tracker.spawn(async move {
            let Some(announcement) = news.sealed(&keeper) else {
                return;
            };
            let announcing = keeper.store.announce(&announcement);
            if let Err(error) = keeper.ask(Operation::Announce, announcing).await {
                tracing::debug!(%error, "other gateways were not told");
            }
        });
    }

    /// Milliseconds since this keeper began, at least one.
    pub(super) fn now(&self) -> u64 {
        self.standing.now()
    }
}
