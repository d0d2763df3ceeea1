//! Requests of the client's that are under way, so that its `notifications/cancelled` reaches also
//! one that waits for its session to be recovered or was sent again, and none that was cancelled is
//! sent again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use bowline_wire::message::same_id;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::session::Session;
use crate::upstream::Epoch;
use crate::upstream::budget::Budget;

/// The requests of one session that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    under_way: Mutex<Vec<Weak<Call>>>,
    repeats: AtomicU64,
}

/// One request, on its session's list as long as anybody holds it.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its id, as JSON text.
    id: Box<str>,
    /// The id under which it was sent again, as JSON text.
    sent_as: Mutex<Option<Box<str>>>,
    /// What it has met, wherever it was sent; nothing for nearly all.
    met: Mutex<Option<Box<Met>>>,
    /// When it was last sent.
    sent_in: AtomicU64,
    cancelled: AtomicBool,
    notify: Notify,
    /// Weak: a stream of the session may hold the call.
    session: Weak<Session>,
}

/// What a request has met. It counts for as long as the client waits, also over streams of its answer
/// that break.
#[derive(Debug, Default)]
struct Met {
    /// How often it may have run without an answer.
    failures: u32,
    lost_session: bool,
    /// The time for its tries.
    budget: Option<Budget>,
}

impl Calls {
    /// The client has cancelled the request with this id.
    pub(crate) fn cancel(&self, id: &str) {
        for call in self.with_id(id) {
            call.cancelled.store(true, Ordering::Release);
            call.notify.notify_waiters();
        }
    }

    /// The id under which the server knows a request, if that is not its own.
    pub(crate) fn sent_as(&self, id: &str) -> Option<Box<str>> {
        let newest = self.with_id(id).pop()?;
        newest.sent_as.lock().clone()
    }

    fn with_id(&self, id: &str) -> Vec<Arc<Call>> {
        let all: Vec<_> = {
            let under_way = self.under_way.lock();
            under_way.iter().filter_map(Weak::upgrade).collect()
        };
        // Outside the lock: one whose last holder this is takes it when it is dropped.
        all.into_iter()
            .filter(|call| same_id(&call.id, id))
            .collect()
    }
}

impl Call {
    /// Puts a request on its session's list.
    pub(crate) fn begin(session: &Arc<Session>, id: &str) -> Arc<Self> {
        let call = Arc::new(Self {
            id: id.into(),
            sent_as: Mutex::default(),
            met: Mutex::default(),
            sent_in: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            notify: Notify::new(),
            session: Arc::downgrade(session),
        });
        session.calls.under_way.lock().push(Arc::downgrade(&call));
        call
    }

    /// A number that no other repeat in the session has.
    pub(crate) fn next_repeat(&self) -> u64 {
        let session = self.session.upgrade();
        session.map_or(0, |session| {
            session.calls.repeats.fetch_add(1, Ordering::Relaxed)
        })
    }

    /// The request goes again under another id (JSON text), or under its own.
    pub(crate) fn mark_sent_as(&self, id: Option<&str>) {
        *self.sent_as.lock() = id.map(Into::into);
    }

    /// The request may have run, and has no answer: how often that was so.
    pub(crate) fn count_failure(&self) -> u32 {
        let mut met = self.met.lock();
        let met = met.get_or_insert_default();
        met.failures = met.failures.saturating_add(1);
        met.failures
    }

    /// Whether an earlier try of the request may have run.
    pub(crate) fn may_have_run(&self) -> bool {
        self.met.lock().as_ref().is_some_and(|met| met.failures > 0)
    }

    /// The request has met a lost session: whether it had before.
    pub(crate) fn count_loss(&self) -> bool {
        let mut met = self.met.lock();
        std::mem::replace(&mut met.get_or_insert_default().lost_session, true)
    }

    /// When the request may be tried next, within this budget.
    pub(crate) fn next_try(&self, budget: impl FnOnce() -> Budget) -> Option<Instant> {
        let mut met = self.met.lock();
        let met = met.get_or_insert_default();
        met.budget.get_or_insert_with(budget).next_at(None)
    }

    /// The request is sent now, or again.
    pub(crate) fn mark_sent(&self, now: Epoch) {
        self.sent_in.store(now.number(), Ordering::Relaxed);
    }

    /// When it was last sent.
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
            // An idle session holds no list.
            *under_way = Vec::new();
        }
    }
}
