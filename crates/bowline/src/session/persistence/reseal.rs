//! Resealing records with the newest key.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_store::{KeyState, Live, Operation, Part, UpdateOutcome};

use crate::session::Session;
use crate::session::persistence::{Persistence, tag};
use crate::session_store::PersistenceError;
use crate::session_store::announcement::Announcement;

impl Persistence {
    /// Reseals a record of an older key in the background. The old key can be removed once every session
    /// was used or has expired.
    pub(crate) fn seal_anew(&self, session: &Arc<Session>) {
        let session = Arc::clone(session);
        self.session_store.tracker.spawn(async move {
            if let Some(persistence) = &session.persistence
                && let Err(error) = persistence.reseal(&session).await
            {
                tracing::debug!(%error, "could not reseal session record");
            }
        });
    }

    /// Reseals the record. If another gateway writes at the same time, a later use tries again.
    pub(crate) async fn reseal(&self, session: &Arc<Session>) -> Result<(), PersistenceError> {
        let (store, knew) = (&self.session_store.store, self.known());
        let KeyState::Live(live) = self
            .session_store
            .ask(Operation::Load, store.load(&self.key))
            .await?
        else {
            return Ok(());
        };
        self.adopt(session, &live, knew).await?;
        // An older record that was restored must not be resealed as current.
        let is_current = {
            let stored = self.stored.lock();
            stored.version == live.version && !stored.is_behind
        };
        if !is_current || !self.has_old_seal.load(Ordering::Relaxed) {
            return Ok(());
        }
        let next = live.version.next();
        let anew = |part, since, sealed: &[u8]| {
            let keys = &self.session_store.keys;
            let plain = keys.open_part(&self.key, part, since, sealed)?;
            self.sealed(part, next, &plain)
        };
        let record = anew(Part::Record, live.version, &live.record)?;
        let jar = match live.jar.is_empty() {
            true => Vec::new(),
            false => anew(Part::Jar, live.jar_since, &live.jar)?,
        };
        let updating = store.update(&self.key, live.version, &record, Some(&jar));
        if let UpdateOutcome::Done(version) =
            self.session_store.ask(Operation::Update, updating).await?
        {
            {
                let mut stored = self.stored.lock();
                if version > stored.version {
                    (stored.version, stored.jar_since) = (version, version);
                    (stored.record_tag, stored.jar_tag) = (tag(&record), tag(&jar));
                    self.has_old_seal.store(false, Ordering::Relaxed);
                }
            }
            self.session_store
                .announce(Announcement::Changed(session.id));
        }
        Ok(())
    }

    pub(crate) fn note_seal(&self, live: &Live) {
        let is_new =
            |sealed: &[u8]| sealed.is_empty() || self.session_store.keys.is_newest_of(sealed);
        let is_old = !is_new(&live.record) || !is_new(&live.jar);
        self.has_old_seal.store(is_old, Ordering::Relaxed);
    }
}
