//! One session in the store. It is written before its client receives the id, checked again before a
//! cached copy is used, moved to a new generation by one gateway at a time, and ended once.

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

use bowline_egress::Jar;
use bowline_store::{Key, KeyState, Live, Operation, Part, Version};
use bowline_system::clock;
use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::leg::{Generation, Leg, Life};
use crate::owners::Owner;
use crate::session::Session;
use crate::session::persistence::cookies::tag;
use crate::session::record::Record;
use crate::session_store::record_error::BadRecord;
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::{Conversation, Remote, Upstream};

/// How long the store remembers that a session has ended: longer than any pending write may take, and
/// longer than a gateway uses a cached copy without a check.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The stored side of one session.
#[derive(Debug)]
pub(crate) struct Persistence {
    pub(crate) session_store: Arc<SessionStore>,
    pub(super) key: Key,
    /// When it was opened, in seconds since 1970.
    pub(crate) opened: i64,
    /// The session's age when this gateway loaded it.
    pub(crate) before: Duration,
    pub(super) stored: Mutex<StoredState>,
    /// When the session was last seen in the store, and when its time there was last restarted;
    /// milliseconds since the session store started.
    pub(super) seen: AtomicU64,
    pub(super) touched: AtomicU64,
    /// The stored record is sealed with an older key.
    pub(super) has_old_seal: AtomicBool,
    /// The stored record lacks the fingerprint of its caller's key.
    pub(super) lacks_key: AtomicBool,
    /// The last generation for which the client was notified of possible changes.
    pub(super) told: AtomicU32,
}

/// The session's state in the store, as far as this gateway knows.
#[derive(Debug)]
pub(in crate::session) struct StoredState {
    pub(super) version: Version,
    pub(super) jar_since: Version,
    /// The tag of the record at that version, once one was read or written. A different tag at the same
    /// version means that the store was restored and took another course.
    pub(super) record_tag: Option<Tag>,
    /// The tag of the last jar that was read. A different tag means that another gateway wrote a jar.
    pub(super) jar_tag: Option<Tag>,
    pub(super) jar_names: u64,
    pub(super) jar_written: Instant,
    /// An older state of the store was restored: this gateway's state must be written over it.
    pub(super) is_behind: bool,
}

type Tag = [u8; 16];

/// The result of publishing a generation.
#[derive(Debug)]
pub(crate) enum Published {
    /// It is now the session's generation.
    Done,
    /// Another gateway published first.
    Other(Arc<Leg>),
    /// The session has ended.
    Ended,
}

// === impl Persistence ===

impl Persistence {
    /// The stored side of a new session. Nothing is written yet.
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
            stored: Mutex::new(StoredState {
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

    /// Loads a session that this gateway has not cached. `None`: there is none.
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
        persistence.note_stored(&live);
        persistence.note_seal(&live);
        // The session may be about to expire in the store: the first use must restart its time.
        persistence.touched = 0.into();
        persistence.lacks_key = written.lacks_key().into();
        let caller = written.caller(upstream.callers())?;
        let leg = persistence
            .leg(id, (upstream, &caller), &written, &live)
            .await?;
        let client_state = written.client_state();
        let told = written.told.max(Generation::FIRST.number);
        persistence.told = told.into();
        if written.generation > told {
            client_state.lists_changed();
        }
        let session = Session::new(id, caller, written.seal(), leg, client_state);
        Ok(Some(session.persisted_by(persistence)))
    }

    /// Whether the cached copy may be used without a check.
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

    /// Brings the cached copy up to date with the store. `false`: the session has ended.
    pub(crate) async fn refresh(&self, session: &Arc<Session>) -> Result<bool, PersistenceError> {
        // While the store is known to be unavailable, requests do not wait for it: a background task
        // checks when it is back.
        if !self.session_store.is_reachable() && self.is_within_grace() {
            return Ok(true);
        }
        let knew = self.known();
        let loading = self.session_store.store.load(&self.key);
        match self.session_store.ask(Operation::Load, loading).await {
            Ok(KeyState::Live(live)) => {
                self.adopt(session, &live, knew).await?;
                let is_behind = self.stored.lock().is_behind;
                if is_behind && let Err(error) = Box::pin(self.save(session, || {})).await {
                    tracing::debug!(%error, "restored session is still outdated in the store");
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
        self.stored.lock().version
    }

    /// Takes over what another gateway has written. `knew` is the version that this gateway had before
    /// it asked the store: a lower version there means that an older state of the store was restored.
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
            // Only if nothing newer arrived meanwhile: the next write must combine these settings,
            // this generation and this version.
            let mut stored = self.stored.lock();
            if live.version > stored.version {
                written.said_to(&session.client_state);
                (stored.version, stored.jar_since) = (live.version, live.jar_since);
                stored.record_tag = tag(&live.record);
                stored.is_behind = false;
                if let Some(leg) = newer {
                    session.put_from_store(&leg, stored);
                }
            }
        }
        self.adopt_jar(&session.leg(), live)?;
        // The time before the endpoint lookup, which may have taken a while.
        self.was_seen(seen);
        Ok(())
    }

    /// The session as a record, with this leg.
    pub(super) fn written(&self, session: &Session, leg: &Leg) -> Result<Record, BadRecord> {
        let mut written = Record::of(session, leg, self.opened)?;
        written.told = self.told.load(Ordering::Relaxed);
        let owner = leg.conversation.owner(&self.session_store.me);
        written.owner = owner.map(str::to_owned);
        Ok(written)
    }

    /// Records that the client was notified of changes up to this generation, so that no gateway
    /// notifies it twice.
    pub(crate) fn was_told(&self, session: &Arc<Session>) {
        let generation = session.leg().generation.number;
        if self.told.fetch_max(generation, Ordering::Relaxed) >= generation {
            return;
        }
        self.write_down(session, "could not persist the notified generation");
    }

    /// Writes the session's current state in the background. `failure` is the log message if that fails.
    pub(super) fn write_down(&self, session: &Arc<Session>, failure: &'static str) {
        let session = Arc::clone(session);
        self.session_store.tracker.spawn(async move {
            if let Some(persistence) = &session.persistence
                && let Err(error) = persistence.save(&session, || {}).await
            {
                tracing::debug!(%error, "{failure}");
            }
        });
    }

    /// The leg that a record describes. If its endpoint is unknown even after a new DNS lookup, the
    /// upstream's session counts as lost.
    pub(super) async fn leg(
        &self,
        id: &SessionId,
        (upstream, caller): (&Arc<Upstream>, &Caller),
        written: &Record,
        live: &Live,
    ) -> Result<Leg, PersistenceError> {
        let found = match upstream.endpoints.by_id(written.endpoint()) {
            Some(endpoint) => Some(endpoint),
            None => upstream.look_for(written.endpoint()).await,
        };
        let account = upstream.account(caller);
        // A caller's token goes only to an endpoint of the server that is configured now.
        let found = found.filter(|found| account.is_none() || upstream.is_configured(found));
        // The operator may have changed the token, or removed it, before a restart.
        let credentials = written.credentials();
        let continues = credentials.continue_at(&upstream.config());
        let account = account.filter(|_| continues);
        let is_lost = found.is_none() || !continues;
        let endpoint = match found {
            Some(endpoint) => endpoint,
            None => upstream
                .pick()
                .await
                .map_err(|ailment| PersistenceError::Nowhere(ailment.into()))?,
        };
        let jar = match continues {
            true => self.jar(live)?,
            false => Jar::default(),
        };
        let remote = written.owner().map(|owner| Remote {
            owner: Owner {
                id: owner.into(),
                read: Instant::now(),
            },
            session: *id,
            generation: written.generation,
            caller: caller.clone(),
            unread: upstream.unread(),
        });
        let life = Life {
            generation: written.generation(),
            conversation: Conversation::stored(
                &endpoint.address,
                written.upstream_session()?,
                jar,
                remote,
            )
            .at_home(written.home()),
            version: written.version()?,
            credentials,
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

    pub(super) fn note_stored(&self, live: &Live) {
        let mut stored = self.stored.lock();
        stored.version = live.version;
        stored.jar_since = live.jar_since;
        stored.record_tag = tag(&live.record);
        stored.jar_tag = tag(&live.jar);
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
