//! Uses of a session restart its time in the store and number its streams.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Persistence;
use crate::session::Session;
use bowline_store::{Operation, StoreError};

impl Persistence {
    /// The work after a use that nothing waits for: restarts the session's time in the store, and writes
    /// the jar if it has changed.
    pub(crate) fn after_use(&self, session: &Arc<Session>) {
        self.touch(session);
        self.keep_jar(session);
    }

    /// A stream number that is higher than any before at any gateway; `None` if the store is unavailable
    /// or not shared.
    pub(crate) async fn next_number(&self) -> Option<u64> {
        if !self.session_store.is_shared() || !self.session_store.is_reachable() {
            return None;
        }
        let numbering = self.session_store.store.next_number(&self.key);
        let number = self
            .session_store
            .ask(Operation::NextNumber, numbering)
            .await;
        number.ok().flatten()
    }

    /// The last such number; `None` if the session has ended.
    pub(crate) async fn last_number(&self) -> Result<Option<u64>, StoreError> {
        let asking = self.session_store.store.last_number(&self.key);
        self.session_store.ask(Operation::LastNumber, asking).await
    }

    /// Restarts the session's time in the store if part of it has passed.
    pub(crate) fn touch(&self, session: &Arc<Session>) {
        let Some(touched) = self.session_store.due_touch(&self.touched) else {
            return;
        };
        if self.has_old_seal.load(Ordering::Relaxed) {
            self.seal_anew(session);
        }
        // Binds the session to the caller's key, in case the caller's name is given to another key
        // later.
        if self.lacks_key.swap(false, Ordering::Relaxed) {
            self.write_down(session, "could not persist the caller's key fingerprint");
        }
        let session = Arc::clone(session);
        self.session_store.tracker.spawn(async move {
            let Some(persistence) = &session.persistence else {
                return;
            };
            let touching = persistence
                .session_store
                .store
                .touch(&persistence.key, persistence.session_store.ttl);
            if let Err(error) = persistence
                .session_store
                .ask(Operation::Touch, touching)
                .await
            {
                // The next use tries again.
                persistence.touched.store(touched, Ordering::Relaxed);
                tracing::debug!(%error, "could not extend session in the store");
            }
        });
    }
}
