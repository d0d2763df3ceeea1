//! Requests of the client's that are under way, so that its `notifications/cancelled` reaches also
//! one that waits for its session to be mended or was sent again, and none that was cancelled is
//! sent again.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Session;

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
    /// How often it failed, wherever it was sent.
    failures: AtomicU32,
    cancelled: AtomicBool,
    notify: Notify,
    /// Weak: a stream of the session may hold the call.
    session: Weak<Session>,
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
        all.into_iter().filter(|call| *call.id == *id).collect()
    }
}

impl Call {
    /// Puts a request on its session's list.
    pub(crate) fn begin(session: &Arc<Session>, id: &str) -> Arc<Self> {
        let call = Arc::new(Self {
            id: id.into(),
            sent_as: Mutex::default(),
            failures: AtomicU32::new(0),
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
    pub(crate) fn goes_as(&self, id: Option<&str>) {
        *self.sent_as.lock() = id.map(Into::into);
    }

    /// The request failed once more: how often that is. It counts for as long as the client waits, also
    /// over streams of its answer that break.
    pub(crate) fn count_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed) + 1
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
