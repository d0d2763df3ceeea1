//! The client's requests in progress. The list lets `notifications/cancelled` reach a request that waits
//! for a recovery or was retried under another id, and keeps a cancelled request from being retried.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bowline_wire::message::{RawId, RawIdBuf};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::session::Session;
use crate::upstream::Epoch;
use crate::upstream::budget::Budget;

/// The requests of one session that are in progress.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: Mutex<Vec<Weak<Call>>>,
}

/// One request. It is in its session's list until it is dropped.
#[derive(Debug)]
pub(crate) struct Call {
    id: RawIdBuf,
    /// The ids of Bowline's own under which a server may know it.
    sent_as: Mutex<Vec<RawIdBuf>>,
    /// Failures so far, over all attempts. Allocated only when there is one.
    met: Mutex<Option<Box<Met>>>,
    /// The epoch of the tool hints when it was last sent.
    sent_in: AtomicU64,
    /// It has its answer, and the stream of that goes on.
    answered: AtomicBool,
    cancelled: AtomicBool,
    notify: Notify,
    /// Weak, because a stream of the session may hold the call.
    session: Weak<Session>,
}

/// The failures of a request. They count for as long as the client waits, including broken response
/// streams.
#[derive(Debug, Default)]
struct Met {
    /// How often it may have run without a response.
    failures: u32,
    lost_session: bool,
    /// The time that remains for further attempts.
    budget: Option<Budget>,
}

impl Calls {
    /// Cancels the request with this id for the client.
    pub(crate) fn cancel(&self, id: RawId<'_>) {
        for call in self.with_id(id) {
            call.cancelled.store(true, Ordering::Release);
            call.notify.notify_waiters();
        }
    }

    /// The ids under which the server may know the requests with this id, besides it.
    pub(crate) fn names(&self, id: RawId<'_>) -> Vec<RawIdBuf> {
        let calls = self.with_id(id);
        calls
            .iter()
            .flat_map(|call| call.sent_as.lock().clone())
            .collect()
    }

    /// Whether the request with this id is in progress.
    pub(crate) fn has(&self, id: RawId<'_>) -> bool {
        !self.with_id(id).is_empty()
    }

    /// Notes that the request with this id has its answer.
    pub(crate) fn answered(&self, id: RawId<'_>) {
        for call in self.with_id(id) {
            call.answered.store(true, Ordering::Release);
        }
    }

    /// Whether the request with this id waits for its answer.
    pub(crate) fn is_open(&self, id: RawId<'_>) -> bool {
        let calls = self.with_id(id);
        calls
            .iter()
            .any(|call| !call.answered.load(Ordering::Acquire))
    }

    fn with_id(&self, id: RawId<'_>) -> Vec<Arc<Call>> {
        let all: Vec<_> = {
            let under_way = self.under_way.lock();
            under_way.iter().filter_map(Weak::upgrade).collect()
        };
        // Outside the lock: dropping the last reference to a call takes the lock.
        all.into_iter()
            .filter(|call| call.id.as_id() == id)
            .collect()
    }
}

impl Call {
    /// Adds a request to its session's list.
    pub(crate) fn begin(session: &Arc<Session>, id: RawId<'_>) -> Arc<Self> {
        let call = Arc::new(Self {
            id: id.to_buf(),
            sent_as: Mutex::default(),
            met: Mutex::default(),
            sent_in: AtomicU64::new(0),
            answered: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
            notify: Notify::new(),
            session: Arc::downgrade(session),
        });
        session.calls.under_way.lock().push(Arc::downgrade(&call));
        call
    }

    /// Whether another request with the same id is in progress.
    pub(crate) fn shares_id(&self, session: &Session) -> bool {
        // Most calls are alone.
        session.calls.under_way.lock().len() > 1 && session.calls.with_id(self.id.as_id()).len() > 1
    }

    /// Records that the request is sent under another id as well.
    pub(crate) fn mark_sent_as(&self, id: RawId<'_>) {
        self.sent_as.lock().push(id.to_buf());
    }

    /// Records that no server knows it under another id any more.
    pub(crate) fn forget_ids(&self) {
        self.sent_as.lock().clear();
    }

    /// The client's id.
    pub(crate) fn id(&self) -> RawId<'_> {
        self.id.as_id()
    }

    /// The ids under which the server may know it.
    pub(crate) fn names(&self) -> Vec<RawIdBuf> {
        let mut names = self.sent_as.lock().clone();
        names.push(self.id.clone());
        names
    }

    /// Counts an attempt that may have run and got no response. Returns the new count.
    pub(crate) fn count_failure(&self) -> u32 {
        let mut met = self.met.lock();
        let met = met.get_or_insert_default();
        met.failures = met.failures.saturating_add(1);
        met.failures
    }

    /// Whether an earlier attempt may have run.
    pub(crate) fn may_have_run(&self) -> bool {
        self.met.lock().as_ref().is_some_and(|met| met.failures > 0)
    }

    /// Records that the request met a lost session. Returns whether that had happened before.
    pub(crate) fn count_loss(&self) -> bool {
        let mut met = self.met.lock();
        std::mem::replace(&mut met.get_or_insert_default().lost_session, true)
    }

    /// The time that remains for further attempts, within this budget.
    pub(crate) fn time_left(&self, budget: impl FnOnce() -> Budget) -> Duration {
        let mut met = self.met.lock();
        let met = met.get_or_insert_default();
        met.budget.get_or_insert_with(budget).left()
    }

    /// When the request may be retried, within this budget.
    pub(crate) fn next_try(&self, budget: impl FnOnce() -> Budget) -> Option<Instant> {
        let mut met = self.met.lock();
        let met = met.get_or_insert_default();
        met.budget.get_or_insert_with(budget).next_at(None)
    }

    /// Records that the request is being sent.
    pub(crate) fn mark_sent(&self, now: Epoch) {
        self.sent_in.store(now.number(), Ordering::Relaxed);
    }

    pub(crate) fn sent_in(&self) -> Epoch {
        Epoch::numbered(self.sent_in.load(Ordering::Relaxed))
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the client cancels.
    pub(crate) async fn cancelled(&self) {
        loop {
            let notified = self.notify.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        let mut under_way = session.calls.under_way.lock();
        under_way.retain(|call| call.strong_count() > 0);
        if under_way.is_empty() {
            // Frees the list's memory while the session is idle.
            *under_way = Vec::new();
        }
    }
}
