//! Requests of the client's that are under way, so that its `notifications/cancelled` reaches also
//! one that waits for its session to be mended, and none that was cancelled is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The requests of one session that are under way.
#[derive(Debug, Default)]
pub(crate) struct Calls(Mutex<Vec<Arc<Call>>>);

/// One request.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its id, as JSON text.
    id: Box<str>,
    cancelled: AtomicBool,
    notify: Notify,
}

/// Takes a request off the list when it is over.
#[derive(Debug)]
pub(crate) struct UnderWay<'a> {
    calls: &'a Calls,
    call: Arc<Call>,
}

impl Calls {
    /// Puts a request on the list.
    pub(crate) fn begin(&self, id: &str) -> UnderWay<'_> {
        let call = Arc::new(Call {
            id: id.into(),
            cancelled: AtomicBool::new(false),
            notify: Notify::new(),
        });
        self.0.lock().push(Arc::clone(&call));
        UnderWay { calls: self, call }
    }

    /// The client has cancelled the request with this id.
    pub(crate) fn cancel(&self, id: &str) {
        for call in self.0.lock().iter().filter(|call| *call.id == *id) {
            call.cancelled.store(true, Ordering::Release);
            call.notify.notify_waiters();
        }
    }
}

impl UnderWay<'_> {
    pub(crate) fn is_cancelled(&self) -> bool {
        self.call.cancelled.load(Ordering::Acquire)
    }

    /// Waits until the client cancels.
    pub(crate) async fn cancelled(&self) {
        loop {
            let notified = self.call.notify.notified();
            if self.is_cancelled() {
                return;
            }
            notified.await;
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.calls
            .0
            .lock()
            .retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}
