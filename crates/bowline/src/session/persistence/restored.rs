//! Repairs a store that was restored to an older state: this gateway writes what it knows over it.

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
    /// Writes a session that a shared store has lost, for example because the store was restored from a
    /// backup made before the session was opened. `false`: the session may just as well have ended or
    /// expired.
    ///
    /// If another gateway had ended the session since it was last seen, the store would remember that;
    /// and another gateway removes it only after a long idle time. Ends that the store itself has lost
    /// cannot be known, but a client does not use a session that it has ended.
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
            tracing::info!(session = %session.hash, "session written again after the store lost it");
            session_store.note_opened();
            let mut stored = self.stored.lock();
            (stored.version, stored.jar_since) = (Version::FIRST, Version::FIRST);
            (stored.record_tag, stored.jar_tag) = (tag(&record), tag(&jar));
            stored.is_behind = false;
            drop(stored);
            self.was_seen(session_store.now());
            return Ok(true);
        }
        // Another gateway wrote it first, or it has ended.
        let knew = self.known();
        let loading = session_store.store.load(&self.key);
        match session_store.ask(Operation::Load, loading).await? {
            KeyState::Live(live) => self.adopt(session, &live, knew).await.map(|()| true),
            KeyState::Absent | KeyState::Ended => Ok(false),
        }
    }

    /// Whether the store has a different record at the version that this gateway knows.
    pub(crate) fn is_another(&self, live: &Live) -> bool {
        let stored = self.stored.lock();
        let is_known = stored.record_tag.is_none() || stored.record_tag == tag(&live.record);
        live.version == stored.version && !is_known
    }

    /// Handles a store whose version is older than the known one, or whose record is a different one.
    /// From now on this gateway's state is written over it, unless another gateway has opened a new
    /// generation since: then that one is used.
    pub(crate) async fn fall_back(
        &self,
        session: &Arc<Session>,
        live: &Live,
        knew: Version,
    ) -> Result<(), PersistenceError> {
        let written = self.open(live)?;
        let newer = self.newer_leg(session, &written, live).await?;
        let mut stored = self.stored.lock();
        if stored.version != knew {
            return Ok(());
        }
        tracing::info!(session = %session.hash, "store was restored to another state of a session");
        (stored.version, stored.jar_since) = (live.version, live.jar_since);
        (stored.record_tag, stored.jar_tag) = (tag(&live.record), None);
        stored.is_behind = true;
        if let Some(leg) = newer {
            session.put_from_store(&leg, stored);
        }
        Ok(())
    }

    /// The leg that a record describes, if it is not the session's current leg and not older.
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
                self.leg(
                    &session.id,
                    (&session.upstream, &session.caller),
                    written,
                    live,
                )
                .await?,
            )),
            false => None,
        })
    }
}
