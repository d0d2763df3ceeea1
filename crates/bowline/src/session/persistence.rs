//! One kept session: written before its client hears of it, looked at again before it is believed,
//! moved to a new generation by one gateway at a time, and ended once.

pub(crate) mod claim;
mod cookies;
mod reseal;
mod restored;
#[cfg(test)]
mod tests;
mod usage;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bowline_store::{Key, KeyState, Live, Operation, Part, Version};
use bowline_system::clock;
use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::leg::{Generation, Leg, Life};
use crate::session::Session;
use crate::session::persistence::cookies::tag;
use crate::session::record::Record;
use crate::session_store::record_error::BadRecord;
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::{Conversation, Upstream};

/// How long an end is remembered: longer than anything that was under way could still write, and than a
/// gateway believes what it saw without asking.
const REMEMBERED: Duration = Duration::from_secs(60);

/// How one session is kept.
#[derive(Debug)]
pub(crate) struct Persistence {
    pub(crate) session_store: Arc<SessionStore>,
    pub(super) key: Key,
    /// When it was opened, in seconds since 1970.
    pub(crate) opened: i64,
    /// How old it was when this gateway got it.
    pub(crate) before: Duration,
    pub(super) place: Mutex<Place>,
    /// When it was last seen in the store, and when its time there last began; milliseconds after
    /// the session store started.
    pub(super) seen: AtomicU64,
    pub(super) touched: AtomicU64,
    /// An older key sealed what is in the store.
    pub(super) has_old_seal: AtomicBool,
    /// What is in the store does not say with which key its caller came.
    pub(super) lacks_key: AtomicBool,
    /// The generation up to which the client was told what may have changed.
    pub(super) told: AtomicU32,
}

/// Where a session is in the store, as far as this gateway knows.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) version: Version,
    pub(super) jar_since: Version,
    /// The tag of the record of that version, once one was read or written: with any other one the store
    /// was put back, and has come to the same version by another way.
    pub(super) record_tag: Option<Tag>,
    /// The tag of the jar that was last read there: any other one was written since.
    pub(super) jar_tag: Option<Tag>,
    pub(super) jar_names: u64,
    pub(super) jar_written: Instant,
    /// The store was put back to an older state: what is known here is to be written on top of it.
    pub(super) is_behind: bool,
}

type Tag = [u8; 16];

/// What became of publishing a generation.
#[derive(Debug)]
pub(crate) enum Published {
    /// It is the session's generation.
    Done,
    /// Another gateway was first.
    Other(Arc<Leg>),
    /// The session has ended.
    Ended,
}

// === impl Persistence ===

impl Persistence {
    /// How a new session is kept; nothing is written yet.
    pub(crate) fn new(
        session_store: &Arc<SessionStore>,
        id: &SessionId,
        server: &str,
    ) -> Box<Self> {
        let now = session_store.now();
        Box::new(Self {
            session_store: Arc::clone(session_store),
            key: Key::of(server, id),
            opened: clock::unix_seconds(),
            before: Duration::ZERO,
            place: Mutex::new(Place {
                version: Version::FIRST,
                jar_since: Version::FIRST,
                record_tag: None,
                jar_tag: None,
                jar_names: 0,
                jar_written: Instant::now(),
                is_behind: false,
            }),
            seen: now.into(),
            touched: now.into(),
            has_old_seal: false.into(),
            lacks_key: false.into(),
            told: Generation::FIRST.number.into(),
        })
    }

    /// A session that this gateway does not have, if there is one. `None`: there is none.
    pub(crate) async fn load(
        session_store: &Arc<SessionStore>,
        id: &SessionId,
        upstream: &Arc<Upstream>,
    ) -> Result<Option<Session>, PersistenceError> {
        if session_store.has_ended(id) {
            return Ok(None);
        }
        session_store.counts.loads.inc();
        let mut persistence = Self::new(session_store, id, upstream.name.as_ref());
        let live = match session_store
            .ask(Operation::Load, session_store.store.load(&persistence.key))
            .await?
        {
            KeyState::Live(live) => live,
            KeyState::Absent | KeyState::Ended => return Ok(None),
        };
        let written = persistence.open(&live)?;
        persistence.opened = written.opened;
        let before = clock::unix_seconds().saturating_sub(written.opened);
        persistence.before = Duration::from_secs(u64::try_from(before).unwrap_or(0));
        persistence.note_place(&live);
        persistence.note_seal(&live);
        // Its time may be nearly over: the first use begins it anew.
        persistence.touched = 0.into();
        persistence.lacks_key = written.lacks_key().into();
        let caller = written.caller(upstream.identities())?;
        let leg = persistence
            .leg((upstream, &caller), &written, &live)
            .await?;
        let client_state = written.client_state();
        let told = written.told.max(Generation::FIRST.number);
        persistence.told = told.into();
        if written.generation > told {
            client_state.lists_changed();
        }
        let session = Session::new(id, caller, written.seal(), leg, client_state);
        let session = session.persisted_by(persistence);
        session.look_at_hints_once();
        Ok(Some(session))
    }

    /// Whether what is at hand may be believed without asking.
    pub(crate) fn is_fresh(&self) -> bool {
        self.session_store
            .is_fresh(self.seen.load(Ordering::Relaxed))
    }

    pub(super) fn is_within_grace(&self) -> bool {
        self.session_store
            .is_within_grace(self.seen.load(Ordering::Relaxed))
    }

    pub(super) fn was_seen(&self, at: u64) {
        self.seen.fetch_max(at, Ordering::Relaxed);
    }

    /// Makes what is at hand what is in the store. `false`: the session has ended.
    pub(crate) async fn refresh(&self, session: &Arc<Session>) -> Result<bool, PersistenceError> {
        // While it is known to be away not every request waits for it: it is asked all the time
        // whether it is back.
        if !self.session_store.is_reachable() && self.is_within_grace() {
            return Ok(true);
        }
        let knew = self.known();
        let loading = self.session_store.store.load(&self.key);
        match self.session_store.ask(Operation::Load, loading).await {
            Ok(KeyState::Live(live)) => {
                self.adopt(session, &live, knew).await?;
                let is_behind = self.place.lock().is_behind;
                if is_behind && let Err(error) = Box::pin(self.save(session, || {})).await {
                    tracing::debug!(%error, "a session that was put back is still older there");
                }
                Ok(true)
            }
            Ok(KeyState::Absent) => Box::pin(self.put_back(session)).await,
            Ok(KeyState::Ended) => Ok(false),
            Err(_) if self.is_within_grace() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn known(&self) -> Version {
        self.place.lock().version
    }

    /// Takes over what another gateway has written. `knew` is the version that was known before the store
    /// was asked: if it has an older one, it was put back to an older state.
    pub(super) async fn adopt(
        &self,
        session: &Arc<Session>,
        live: &Live,
        knew: Version,
    ) -> Result<(), PersistenceError> {
        if live.version < knew {
            return self.fall_back(session, live, knew).await;
        }
        if self.is_another(live) {
            return self.fall_back(session, live, live.version).await;
        }
        let seen = self.session_store.now();
        let known = self.known();
        if live.version < known {
            return Ok(());
        }
        self.note_seal(live);
        if live.version > known {
            let written = self.open(live)?;
            let newer = self.newer_leg(session, &written, live).await?;
            let put = {
                // Only if nothing newer came meanwhile: whoever writes next writes what was said
                // here, on this generation, under this version.
                let mut place = self.place.lock();
                let is_news = live.version > place.version;
                if is_news {
                    written.said_to(&session.client_state);
                    (place.version, place.jar_since) = (live.version, live.jar_since);
                    place.record_tag = tag(&live.record);
                    place.is_behind = false;
                }
                newer.filter(|_| is_news).map(|leg| session.put(&leg))
            };
            if let Some(put) = put {
                session.goes_on(put);
            }
        }
        self.adopt_jar(&session.leg(), live)?;
        // Not now: finding its endpoint may have taken a while.
        self.was_seen(seen);
        Ok(())
    }

    /// The session as it is written, on this leg.
    pub(super) fn written(&self, session: &Session, leg: &Leg) -> Result<Record, BadRecord> {
        let mut written = Record::of(session, leg, self.opened)?;
        written.told = self.told.load(Ordering::Relaxed);
        Ok(written)
    }

    /// The client was told what may have changed up to this generation: no other gateway needs to, nor
    /// this one once it has let the session go.
    pub(crate) fn was_told(&self, session: &Arc<Session>) {
        let generation = session.leg().generation.number;
        if self.told.fetch_max(generation, Ordering::Relaxed) >= generation {
            return;
        }
        self.write_down(session, "what a client was told is not in the store");
    }

    /// Writes the session as it is, without anybody waiting for it.
    pub(super) fn write_down(&self, session: &Arc<Session>, if_not: &'static str) {
        let session = Arc::clone(session);
        self.session_store.tracker.spawn(async move {
            if let Some(persistence) = &session.persistence
                && let Err(error) = persistence.save(&session, || {}).await
            {
                tracing::debug!(%error, "{if_not}");
            }
        });
    }

    /// The leg that a record speaks of. Where its endpoint is unknown here, even after another look
    /// at the names, the upstream's session counts as lost.
    pub(super) async fn leg(
        &self,
        (upstream, caller): (&Arc<Upstream>, &Caller),
        written: &Record,
        live: &Live,
    ) -> Result<Leg, PersistenceError> {
        let found = match upstream.endpoints.by_id(written.endpoint()) {
            Some(endpoint) => Some(endpoint),
            None => upstream.look_for(written.endpoint()).await,
        };
        let account = upstream.account(caller);
        // One that the server has left is not shown what the caller was granted at the server's new place.
        let found = found.filter(|found| account.is_none() || upstream.is_configured(found));
        // Nor does one that was opened with a caller's token go on without any.
        let is_lost = found.is_none() || (account.is_none() && written.sign_in != 0);
        let endpoint = match found {
            Some(endpoint) => endpoint,
            None => upstream.pick().await.map_err(PersistenceError::Nowhere)?,
        };
        let life = Life {
            generation: written.generation(),
            conversation: Conversation::http(written.upstream_session()?, self.jar(live)?),
            version: written.version()?,
            sign_in: written.sign_in,
            missing_lists: written.missing_lists,
        };
        let leg = Leg::new(Arc::clone(upstream), endpoint, account, life);
        if is_lost {
            leg.lose();
        }
        Ok(leg)
    }

    pub(super) fn open(&self, live: &Live) -> Result<Record, PersistenceError> {
        let keys = &self.session_store.keys;
        let opened = keys.open_part(&self.key, Part::Record, live.version, &live.record)?;
        Ok(Record::parse(&opened)?)
    }

    pub(super) fn note_place(&self, live: &Live) {
        let mut place = self.place.lock();
        place.version = live.version;
        place.jar_since = live.jar_since;
        place.record_tag = tag(&live.record);
        place.jar_tag = tag(&live.jar);
    }

    pub(super) fn sealed(
        &self,
        part: Part,
        version: Version,
        bytes: &[u8],
    ) -> Result<Vec<u8>, PersistenceError> {
        let keys = &self.session_store.keys;
        Ok(keys.seal_part(&self.key, part, version, bytes)?)
    }
}
