//! A store that was put back to an older state: what this gateway knows is written on top of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bowline_store::{KeyState, Live, Operation, Part, Version};

use crate::leg::Leg;
use crate::session::Session;
use crate::session::persistence::{Persistence, REMEMBERED, tag};
use crate::session::record::Record;
use crate::session_store::PersistenceError;
use crate::session_store::record_error::BadRecord;

impl Persistence {
    /// Writes a session anew that a shared store has lost, as one does that was restored from before it
    /// was opened. `false`: it may as well have ended, or expired.
    ///
    /// Had another gateway ended it since it was last known to be there, that would be remembered in the
    /// store; and for another to let it go, nobody may have used it for long. What the store forgot of
    /// ends, nobody can know: a client that ended its session does not ask for it.
    pub(crate) async fn put_back(&self, session: &Arc<Session>) -> Result<bool, PersistenceError> {
        let session_store = &self.session_store;
        let touched = self.touched.load(Ordering::Relaxed);
        let is_lost = session_store.is_shared()
            && session_store.would_remember(self.seen.load(Ordering::Relaxed), REMEMBERED)
            && touched != 0
            && session_store.would_keep(touched)
            && !session_store.has_ended(&session.id);
        if !is_lost {
            return Ok(false);
        }
        let leg = session.leg();
        let record = self.written(session, &leg)?.to_bytes()?;
        let record = self.sealed(Part::Record, Version::FIRST, &record)?;
        let jar = self.sealed_jar(&leg, Version::FIRST)?;
        let creating = session_store
            .store
            .create(&self.key, &record, &jar, session_store.ttl);
        if session_store.ask(Operation::Create, creating).await? {
            tracing::info!(session = %session.hash, "a session that the store had lost was written anew");
            session_store.note_opened();
            let mut place = self.place.lock();
            (place.version, place.jar_since) = (Version::FIRST, Version::FIRST);
            (place.record_tag, place.jar_tag) = (tag(&record), tag(&jar));
            place.is_behind = false;
            drop(place);
            self.was_seen(session_store.now());
            return Ok(true);
        }
        // Another gateway was faster, or it has ended.
        let knew = self.known();
        let loading = session_store.store.load(&self.key);
        match session_store.ask(Operation::Load, loading).await? {
            KeyState::Live(live) => self.adopt(session, &live, knew).await.map(|()| true),
            KeyState::Absent | KeyState::Ended => Ok(false),
        }
    }

    /// Whether the store has another record of the version that is known here.
    pub(crate) fn is_another(&self, live: &Live) -> bool {
        let place = self.place.lock();
        let is_known = place.record_tag.is_none() || place.record_tag == tag(&live.record);
        live.version == place.version && !is_known
    }

    /// The store has less than was known, or another thing. From here on what is known is written on top of what is there;
    /// but if another gateway has opened the session anew since, that is its generation.
    pub(crate) async fn fall_back(
        &self,
        session: &Arc<Session>,
        live: &Live,
        knew: Version,
    ) -> Result<(), PersistenceError> {
        let written = self.open(live)?;
        let newer = self.newer_leg(session, &written, live).await?;
        let put = {
            let mut place = self.place.lock();
            if place.version != knew {
                return Ok(());
            }
            tracing::info!(session = %session.hash, "the store was put back to another state of a session");
            (place.version, place.jar_since) = (live.version, live.jar_since);
            (place.record_tag, place.jar_tag) = (tag(&live.record), None);
            place.is_behind = true;
            newer.map(|leg| session.put(&leg))
        };
        if let Some(put) = put {
            session.goes_on(put);
        }
        Ok(())
    }

    /// The leg that a record speaks of, if it is not the session's and no older one.
    pub(crate) async fn newer_leg(
        &self,
        session: &Session,
        written: &Record,
        live: &Live,
    ) -> Result<Option<Arc<Leg>>, PersistenceError> {
        let current = session.leg();
        let generation = current.generation.number;
        let is_other = || {
            let upstream = written.upstream_session()?;
            Ok::<_, BadRecord>(upstream.as_ref() != current.upstream_session())
        };
        let is_newer =
            written.generation > generation || (written.generation == generation && is_other()?);
        Ok(match is_newer {
            true => Some(Arc::new(
                self.leg((&session.upstream, &session.caller), written, live)
                    .await?,
            )),
            false => None,
        })
    }
}
