//! A session's cookies in the store: written behind the answers, apart from the record.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Kept, Tag};
use crate::egress::Jar;
use crate::leg::Leg;
use crate::session::Session;
use crate::session::keeper::Unsure;
use crate::session::written::BadRecord;
use crate::store::{Live, Operation, Part, Version};

/// How often a jar is written, unless a cookie comes or goes.
const JAR_EVERY: Duration = Duration::from_secs(1);

impl Kept {
    /// Takes over the cookies that another gateway got since this one looked.
    pub(super) fn adopt_jar(&self, leg: &Leg, live: &Live) -> Result<(), Unsure> {
        let tag = tag(&live.jar);
        let is_news = {
            let place = self.place.lock();
            let is_its = live.jar_since == place.jar_since && live.version == place.version;
            is_its && tag != place.jar_tag
        };
        if is_news && leg.take_over_jar(self.jar(live)?) {
            self.place.lock().jar_tag = tag;
        }
        Ok(())
    }

    pub(super) fn jar(&self, live: &Live) -> Result<Jar, Unsure> {
        if live.jar.is_empty() {
            return Ok(Jar::default());
        }
        let place = self.key.bound(Part::Jar, live.jar_since);
        let bytes = self.keeper.keys.open(&place, &live.jar)?;
        Ok(Jar::from_bytes(&bytes).map_err(BadRecord::from)?)
    }

    /// The jar as it is written; what changed in it so far is dealt with.
    pub(super) fn sealed_jar(&self, leg: &Leg, version: Version) -> Result<Vec<u8>, Unsure> {
        leg.take_jar_change();
        match leg.jar_bytes() {
            None => Ok(Vec::new()),
            Some(bytes) => self.sealed(Part::Jar, version, &bytes.map_err(BadRecord::from)?),
        }
    }

    /// Writes the jar if it has changed; if that failed before, again.
    pub(in crate::session) fn keep_jar(&self, session: &Arc<Session>) {
        // While the store is known to be away, nothing piles up that waits for it.
        if !self.keeper.is_reachable() {
            return;
        }
        let leg = session.leg();
        if let Some(since) = self.jar_due(&leg) {
            let Ok(jar) = self.sealed_jar(&leg, since) else {
                return;
            };
            let (keeper, key) = (Arc::clone(&self.keeper), self.key.clone());
            self.keeper.tracker.spawn(async move {
                let putting = keeper.store.put_jar(&key, since, &jar);
                match keeper.ask(Operation::PutJar, putting).await {
                    Ok(true) => {}
                    // The record was written meanwhile; the next use knows for which version.
                    Ok(false) => leg.put_back_jar_change(),
                    Err(error) => {
                        leg.put_back_jar_change();
                        tracing::debug!(%error, "a session's cookies were not written");
                    }
                }
            });
        }
    }

    /// The version whose jar is to be written, if it is time to.
    pub(super) fn jar_due(&self, leg: &Leg) -> Option<Version> {
        if !leg.take_jar_change() {
            return None;
        }
        let mut place = self.place.lock();
        let names = leg.jar_names();
        if names == place.jar_names && place.jar_written.elapsed() < JAR_EVERY {
            leg.put_back_jar_change();
            return None;
        }
        place.jar_names = names;
        place.jar_written = Instant::now();
        Some(place.jar_since)
    }
}

/// What tells one sealed jar, or record, from another; `None` for no jar.
pub(super) fn tag(sealed: &[u8]) -> Option<Tag> {
    sealed.last_chunk().copied()
}
