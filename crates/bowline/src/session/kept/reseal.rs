//! Sealing with the newest key what an older one sealed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Kept, tag};
use crate::session::Session;
use crate::session::keeper::Unsure;
use crate::session::news::News;
use crate::store::{Live, Loaded, Operation, Part, Updated};

impl Kept {
    /// Seals what an older key sealed with the newest one, so that the old key can be taken out once
    /// every session was used or has expired.
    pub(super) fn seal_anew(&self, session: &Arc<Session>) {
        let session = Arc::clone(session);
        self.keeper.tracker.spawn(async move {
            if let Some(kept) = &session.kept
                && let Err(error) = kept.reseal(&session).await
            {
                tracing::debug!(%error, "a session was not sealed anew");
            }
        });
    }

    /// If somebody else writes meanwhile, the next time is soon enough.
    pub(super) async fn reseal(&self, session: &Arc<Session>) -> Result<(), Unsure> {
        let (store, knew) = (&self.keeper.store, self.known());
        let Loaded::Live(live) = self
            .keeper
            .ask(Operation::Load, store.load(&self.key))
            .await?
        else {
            return Ok(());
        };
        self.adopt(session, &live, knew).await?;
        // An older record that somebody put back is not made good.
        let is_current = {
            let place = self.place.lock();
            place.version == live.version && !place.is_behind
        };
        if !is_current || !self.has_old_seal.load(Ordering::Relaxed) {
            return Ok(());
        }
        let next = live.version.next();
        let anew = |part, since, sealed: &[u8]| {
            let plain = self
                .keeper
                .keys
                .open(&self.key.bound(part, since), sealed)?;
            self.sealed(part, next, &plain)
        };
        let record = anew(Part::Record, live.version, &live.record)?;
        let jar = match live.jar.is_empty() {
            true => Vec::new(),
            false => anew(Part::Jar, live.jar_since, &live.jar)?,
        };
        let updating = store.update(&self.key, live.version, &record, Some(&jar));
        if let Updated::Done(version) = self.keeper.ask(Operation::Update, updating).await? {
            {
                let mut place = self.place.lock();
                if version > place.version {
                    (place.version, place.jar_since) = (version, version);
                    (place.record_tag, place.jar_tag) = (tag(&record), tag(&jar));
                    self.has_old_seal.store(false, Ordering::Relaxed);
                }
            }
            self.keeper.announce(News::Changed(session.id));
        }
        Ok(())
    }

    pub(super) fn note_seal(&self, live: &Live) {
        let is_new = |sealed: &[u8]| sealed.is_empty() || self.keeper.keys.is_newest_of(sealed);
        let is_old = !is_new(&live.record) || !is_new(&live.jar);
        self.has_old_seal.store(is_old, Ordering::Relaxed);
    }
}
