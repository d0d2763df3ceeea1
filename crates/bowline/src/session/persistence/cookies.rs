//! A session's cookies in the store. They are written in the background, separately from the record.

use std::sync::Arc;
use std::time::Duration;

use bowline_egress::Jar;
use bowline_store::{Live, Operation, Part, Version};
use tokio::time::Instant;

use crate::leg::Leg;
use crate::session::Session;
use crate::session::persistence::{Persistence, Tag};
use crate::session_store::PersistenceError;
use crate::session_store::record_error::BadRecord;

/// How often a jar is written at most, unless a cookie is added or removed.
const JAR_EVERY: Duration = Duration::from_secs(1);

impl Persistence {
    /// Takes over the cookies that another gateway has stored since the last check.
    pub(crate) fn adopt_jar(&self, leg: &Leg, live: &Live) -> Result<(), PersistenceError> {
        let tag = tag(&live.jar);
        let is_news = {
            let stored = self.stored.lock();
            let is_its = live.jar_since == stored.jar_since && live.version == stored.version;
            is_its && tag != stored.jar_tag
        };
        if is_news && leg.take_over_jar(self.jar(live)?) {
            self.stored.lock().jar_tag = tag;
        }
        Ok(())
    }

    pub(crate) fn jar(&self, live: &Live) -> Result<Jar, PersistenceError> {
        if live.jar.is_empty() {
            return Ok(Jar::default());
        }
        let keys = &self.session_store.keys;
        let bytes = keys.open_part(&self.key, Part::Jar, live.jar_since, &live.jar)?;
        Ok(Jar::from_bytes(&bytes).map_err(BadRecord::from)?)
    }

    /// The sealed jar. This also clears the leg's mark that the jar has changed.
    pub(crate) fn sealed_jar(
        &self,
        leg: &Leg,
        version: Version,
    ) -> Result<Vec<u8>, PersistenceError> {
        leg.take_jar_change();
        match leg.jar_bytes() {
            None => Ok(Vec::new()),
            Some(bytes) => self.sealed(Part::Jar, version, &bytes.map_err(BadRecord::from)?),
        }
    }

    /// Writes the jar if it has changed or an earlier write failed.
    pub(crate) fn keep_jar(&self, session: &Arc<Session>) {
        // While the store is known to be unavailable, no tasks pile up that wait for it.
        if !self.session_store.is_reachable() {
            return;
        }
        let leg = session.leg();
        if let Some(since) = self.jar_due(&leg) {
            let Ok(jar) = self.sealed_jar(&leg, since) else {
                return;
            };
            let (session_store, key) = (Arc::clone(&self.session_store), self.key.clone());
            self.session_store.tracker.spawn(async move {
                let putting = session_store.store.put_jar(&key, since, &jar);
                match session_store.ask(Operation::PutJar, putting).await {
                    Ok(true) => {}
                    // The record was written meanwhile; the next use writes the jar for its version.
                    Ok(false) => leg.put_back_jar_change(),
                    Err(error) => {
                        leg.put_back_jar_change();
                        tracing::debug!(%error, "could not persist cookies");
                    }
                }
            });
        }
    }

    /// The version whose jar must be written now, if any.
    pub(crate) fn jar_due(&self, leg: &Leg) -> Option<Version> {
        if !leg.take_jar_change() {
            return None;
        }
        let mut stored = self.stored.lock();
        let names = leg.jar_names();
        if names == stored.jar_names && stored.jar_written.elapsed() < JAR_EVERY {
            leg.put_back_jar_change();
            return None;
        }
        stored.jar_names = names;
        stored.jar_written = Instant::now();
        Some(stored.jar_since)
    }
}

/// Distinguishes sealed jars, or records, from each other; `None` for no jar.
pub(crate) fn tag(sealed: &[u8]) -> Option<Tag> {
    sealed.last_chunk().copied()
}
