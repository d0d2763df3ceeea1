//! Writes a session: before its client receives the id, when its generation or a setting changes, and
//! when it ends.

use std::sync::Arc;

use super::cookies::tag;
use super::{Persistence, Published, REMEMBERED};
use crate::leg::Leg;
use crate::session::Session;
use crate::session::last_leg::LastLeg;
use crate::session_store::PersistenceError;
use crate::session_store::announcement::Announcement;
use bowline_store::{Live, MAX_CONFLICTS, Operation, Part, UpdateOutcome, Version};

impl Persistence {
    /// Writes a new session, before its client receives the id.
    pub(crate) async fn create(&self, session: &Session) -> Result<(), PersistenceError> {
        let leg = session.leg();
        let record = self.written(session, &leg)?.to_bytes()?;
        let record = self.sealed(Part::Record, Version::FIRST, &record)?;
        let jar = self.sealed_jar(&leg, Version::FIRST)?;
        {
            let mut stored = self.stored.lock();
            stored.jar_names = leg.jar_names();
            stored.record_tag = tag(&record);
        }
        let store = &self.session_store.store;
        let creating = store.create(&self.key, &record, &jar, self.session_store.ttl);
        match self.session_store.ask(Operation::Create, creating).await? {
            true => {
                self.session_store.note_opened();
                Ok(())
            }
            // Ids are random, so a collision with a session of ours is not possible by chance.
            false => Err(PersistenceError::Contended),
        }
    }

    /// Makes `leg` the session's generation for every gateway, unless another gateway has published one.
    pub(crate) async fn publish(
        &self,
        session: &Arc<Session>,
        leg: &Arc<Leg>,
    ) -> Result<Published, PersistenceError> {
        for _ in 0..MAX_CONFLICTS {
            let (version, written) = {
                // The settings and the leg belong to the version (see `adopt`), so all three are read
                // under one lock.
                let stored = self.stored.lock();
                let current = session.leg();
                if current.generation.number >= leg.generation.number {
                    return Ok(Published::Other(current));
                }
                (stored.version, self.written(session, leg)?)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let jar = self.sealed_jar(leg, version.next())?;
            let store = &self.session_store.store;
            let updating = store.update(&self.key, version, &record, Some(&jar));
            match self.session_store.ask(Operation::Update, updating).await? {
                UpdateOutcome::Done(version) => {
                    let published = {
                        // One step for other writers: they see the new version and the new generation
                        // together.
                        let mut stored = self.stored.lock();
                        if version > stored.version {
                            (stored.version, stored.jar_since) = (version, version);
                            stored.record_tag = tag(&record);
                            stored.jar_names = leg.jar_names();
                            stored.is_behind = false;
                        }
                        session.put(leg, stored)
                    };
                    self.was_seen(self.session_store.now());
                    self.session_store
                        .announce(Announcement::Changed(session.id));
                    return Ok(published);
                }
                // A session that is missing because the store was emptied has not ended.
                UpdateOutcome::Gone if Box::pin(self.put_back(session)).await? => {}
                UpdateOutcome::Gone => return Ok(Published::Ended),
                UpdateOutcome::Conflict(live) => self.adopt(session, &live, version).await?,
            }
        }
        Err(PersistenceError::Contended)
    }

    /// Writes the client's settings. `said` applies them again after another gateway's write was taken
    /// over. Returns the session's current leg, which may be a newer one.
    pub(crate) async fn save(
        &self,
        session: &Arc<Session>,
        said: impl Fn(),
    ) -> Result<Arc<Leg>, PersistenceError> {
        for _ in 0..MAX_CONFLICTS {
            let (version, leg, written, is_behind) = {
                // The settings belong to the version, see `adopt`.
                let stored = self.stored.lock();
                said();
                let leg = session.leg();
                let written = self.written(session, &leg)?;
                (stored.version, leg, written, stored.is_behind)
            };
            let record = self.sealed(Part::Record, version.next(), &written.to_bytes()?)?;
            let jar = match is_behind {
                true => Some(self.sealed_jar(&leg, version.next())?),
                false => None,
            };
            let store = &self.session_store.store;
            let updating = store.update(&self.key, version, &record, jar.as_deref());
            match self.session_store.ask(Operation::Update, updating).await? {
                UpdateOutcome::Done(version) => {
                    {
                        let mut stored = self.stored.lock();
                        if version > stored.version {
                            stored.version = version;
                            stored.record_tag = tag(&record);
                            if let Some(jar) = &jar {
                                (stored.jar_since, stored.jar_tag) = (version, tag(jar));
                                stored.is_behind = false;
                            }
                        }
                    }
                    self.was_seen(self.session_store.now());
                    self.session_store
                        .announce(Announcement::Changed(session.id));
                    return Ok(leg);
                }
                // The next lookup notices that the session has ended.
                UpdateOutcome::Gone => return Ok(leg),
                UpdateOutcome::Conflict(live) => self.adopt(session, &live, version).await?,
            }
        }
        Err(PersistenceError::Contended)
    }

    /// Ends the session in the store. `None`: it had already ended.
    pub(crate) async fn end(
        &self,
        session: &Arc<Session>,
    ) -> Result<Option<LastLeg>, PersistenceError> {
        let ending = self.session_store.store.end(&self.key, REMEMBERED);
        let replaced = self.session_store.ask(Operation::End, ending).await?;
        if replaced.is_some() {
            self.session_store.note_ended();
        }
        self.session_store.remember_end(&session.id);
        self.session_store.announce(Announcement::Ended(session.id));
        self.last_leg(session, replaced).await
    }

    /// Removes the session from the store if no gateway has used it for the idle time. `None`: one has,
    /// or it is gone.
    pub(crate) async fn expire(
        &self,
        session: &Arc<Session>,
    ) -> Result<Option<LastLeg>, PersistenceError> {
        let session_store = &self.session_store;
        let expired = session_store
            .store
            .expire(&self.key, session_store.left_of_unused());
        let replaced = session_store.ask(Operation::Expire, expired).await?;
        if replaced.is_some() {
            session_store.note_ended();
            session_store.remember_end(&session.id);
            session_store.announce(Announcement::Ended(session.id));
        }
        self.last_leg(session, replaced).await
    }

    /// The last leg of a session that was ended here.
    async fn last_leg(
        &self,
        session: &Arc<Session>,
        replaced: Option<Live>,
    ) -> Result<Option<LastLeg>, PersistenceError> {
        let Some(live) = replaced else {
            return Ok(None);
        };
        if let Err(error) = self.adopt(session, &live, Version(0)).await {
            tracing::debug!(%error, "could not read the last generation of an ended session");
        }
        Ok(Some(LastLeg::of(session)))
    }
}
