//! The use of a session: while a request or a stream of it is in progress, it does not expire.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Session;

/// Keeps a session from expiring while a request or a stream of it is in progress.
#[derive(Debug)]
pub(crate) struct InUse(Arc<Session>);

impl Session {
    /// Marks the session as in use.
    pub(crate) fn begin_use(self: &Arc<Self>) -> InUse {
        self.uses.fetch_add(1, Ordering::AcqRel);
        InUse(Arc::clone(self))
    }

    /// The time since the last request or stream ended.
    pub(crate) fn idle_for(&self) -> Duration {
        if self.uses.load(Ordering::Acquire) > 0 {
            return Duration::ZERO;
        }
        let last_used = Duration::from_millis(self.last_used.load(Ordering::Relaxed));
        self.opened.elapsed().saturating_sub(last_used)
    }
}

// === impl InUse ===

impl InUse {
    /// Whether nothing else uses the session.
    pub(crate) fn is_only_use(&self) -> bool {
        self.0.uses.load(Ordering::Acquire) == 1
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.0
    }

    /// Whether something else uses the session as well.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.uses.load(Ordering::Acquire) > 1
    }
}

impl Clone for InUse {
    fn clone(&self) -> Self {
        self.0.begin_use()
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let after = self.0.opened.elapsed();
        self.0.contact.note(after);
        let since = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        self.0.last_used.store(since, Ordering::Relaxed);
        if let Some(persistence) = &self.0.persistence {
            persistence.after_use(&self.0);
        }
        // After the time was stored, so that a reader that sees no use also sees when the last one
        // ended.
        self.0.uses.fetch_sub(1, Ordering::Release);
    }
}
