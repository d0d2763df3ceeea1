//! An attachment in the store: written before its client receives the id, changed by one gateway at a time, checked
//! again before a cached copy is used, and ended once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_store::{
    Key, KeyState, Live, MAX_CONFLICTS, Operation, Part, StoreError, UpdateOutcome, Version,
};
use bowline_system::clock;
use bowline_wire::id::SessionId;
use bowline_wire::message::Message;
use bowline_wire::version::Agreed;
use bytes::Bytes;
use parking_lot::Mutex;

use super::record::Record;
use super::{Attachment, Parts};
use crate::callers::Callers;
use crate::route::union::Union;
use crate::session_store::announcement::Announcement;
use crate::session_store::record_error::BadRecord;
use crate::session_store::{PersistenceError, SessionStore};
use crate::union::shown::SharedNames;
use crate::union::state::State;

/// How long the store remembers that an attachment has ended, as for sessions.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The stored side of one attachment.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(in crate::union) session_store: Arc<SessionStore>,
    shown: Arc<SharedNames>,
    key: Key,
    /// The version that this gateway knows.
    version: Mutex<Version>,
    /// When it was last seen in the store, and when its time there was last restarted; milliseconds since the
    /// session store started.
    seen: AtomicU64,
    touched: AtomicU64,
}

// === impl Stored ===

impl Stored {
    /// The stored side of a new attachment. Nothing is written yet.
    pub(in crate::union) fn new(
        session_store: &Arc<SessionStore>,
        shown: &Arc<SharedNames>,
        id: &SessionId,
        union: &Union,
    ) -> Self {
        let now = session_store.now();
        Self {
            session_store: Arc::clone(session_store),
            shown: Arc::clone(shown),
            key: Key::of(union.name.as_ref(), id),
            version: Mutex::new(Version::FIRST),
            seen: now.into(),
            touched: now.into(),
        }
    }

    /// Loads an attachment that this gateway has not cached. `None`: there is none.
    pub(in crate::union) async fn load(
        session_store: &Arc<SessionStore>,
        shown: &Arc<SharedNames>,
        id: &SessionId,
        union: &Arc<Union>,
        callers: &Callers,
    ) -> Result<Option<Attachment>, PersistenceError> {
        if session_store.has_ended(id) {
            return Ok(None);
        }
        let mut stored = Self::new(session_store, shown, id, union);
        let loading = session_store.store.load(&stored.key);
        let live = match session_store.ask(Operation::Load, loading).await? {
            KeyState::Live(live) => live,
            KeyState::Absent | KeyState::Ended => return Ok(None),
        };
        let record = stored.open(&live)?;
        *stored.version.get_mut() = live.version;
        // It may be about to expire: the first use must restart its time.
        stored.touched = 0.into();
        let initialize = Bytes::copy_from_slice(record.initialize.get().as_bytes());
        let initialize = Message::parse(initialize);
        let before = clock::unix_seconds().saturating_sub(record.opened);
        Ok(Some(Attachment::new(Parts {
            id: *id,
            caller: record.caller(callers)?,
            union: Arc::clone(union),
            seal: record.seal,
            initialize: initialize.map_err(|_| BadRecord::Impossible("initialize"))?,
            carried: record.carried,
            version: Agreed::on(&record.version).ok_or(BadRecord::Impossible("version"))?,
            opened_at: record.opened,
            before: Duration::from_secs(u64::try_from(before).unwrap_or(0)),
            state: record.state,
            stored: Some(stored),
        })))
    }

    /// Writes a new attachment, before its client receives the id.
    pub(in crate::union) async fn create(
        &self,
        attachment: &Attachment,
    ) -> Result<bool, PersistenceError> {
        let state = attachment.state.lock().clone();
        let record = self.sealed(attachment, &state, Version::FIRST)?;
        let session_store = &self.session_store;
        let creating = session_store
            .store
            .create(&self.key, &record, &[], session_store.ttl);
        let is_created = session_store.ask(Operation::Create, creating).await?;
        if is_created {
            session_store.note_opened();
        }
        Ok(is_created)
    }

    /// Changes the state in the store, and then here. `None`: the attachment has ended.
    pub(in crate::union) async fn change<R>(
        &self,
        attachment: &Attachment,
        mut change: impl FnMut(&mut State) -> R,
    ) -> Result<Option<R>, PersistenceError> {
        for _ in 0..MAX_CONFLICTS {
            let version = *self.version.lock();
            let before = attachment.state.lock().clone();
            let mut state = before.clone();
            let result = change(&mut state);
            if state == before {
                return Ok(Some(result));
            }
            let record = self.sealed(attachment, &state, version.next())?;
            let updating = self
                .session_store
                .store
                .update(&self.key, version, &record, None);
            match self.session_store.ask(Operation::Update, updating).await? {
                UpdateOutcome::Done(version) => {
                    self.adopt(attachment, version, state);
                    let news = Announcement::Changed(attachment.id);
                    self.session_store.announce(news);
                    return Ok(Some(result));
                }
                UpdateOutcome::Gone if self.put_back(attachment).await? => {}
                UpdateOutcome::Gone => return Ok(None),
                UpdateOutcome::Conflict(live) => {
                    let record = self.open(&live)?;
                    self.adopt(attachment, live.version, record.state);
                }
            }
        }
        Err(PersistenceError::Contended)
    }

    /// Whether the cached copy may be used without asking the store.
    pub(in crate::union) fn is_fresh(&self) -> bool {
        self.session_store
            .is_fresh(self.seen.load(Ordering::Relaxed))
    }

    /// Brings the cached copy up to date with the store. `false`: the attachment has ended.
    pub(in crate::union) async fn refresh(
        &self,
        attachment: &Attachment,
    ) -> Result<bool, PersistenceError> {
        let session_store = &self.session_store;
        let is_within_grace = || session_store.is_within_grace(self.seen.load(Ordering::Relaxed));
        if !session_store.is_reachable() && is_within_grace() {
            return Ok(true);
        }
        let loading = session_store.store.load(&self.key);
        match session_store.ask(Operation::Load, loading).await {
            Ok(KeyState::Live(live)) => {
                let _changing = attachment.changing.lock().await;
                if live.version > *self.version.lock() {
                    let record = self.open(&live)?;
                    self.adopt(attachment, live.version, record.state);
                }
                self.was_seen();
                Ok(true)
            }
            Ok(KeyState::Absent) => self.put_back(attachment).await,
            Ok(KeyState::Ended) => Ok(false),
            Err(_) if is_within_grace() => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes an attachment that a shared store has lost. `false`: it may just as well have ended or expired.
    async fn put_back(&self, attachment: &Attachment) -> Result<bool, PersistenceError> {
        let session_store = &self.session_store;
        let touched = self.touched.load(Ordering::Relaxed);
        let is_lost = session_store.is_shared()
            && session_store.would_remember(self.seen.load(Ordering::Relaxed), REMEMBERED)
            && touched != 0
            && session_store.would_keep(touched)
            && !session_store.has_ended(&attachment.id);
        if !is_lost || !self.create(attachment).await? {
            return Ok(false);
        }
        *self.version.lock() = Version::FIRST;
        self.was_seen();
        Ok(true)
    }

    /// Ends the attachment in the store. Returns its last state to the one gateway that ended it.
    pub(in crate::union) async fn end(
        &self,
        id: &SessionId,
    ) -> Result<Option<State>, PersistenceError> {
        let session_store = &self.session_store;
        let ending = session_store.store.end(&self.key, REMEMBERED);
        let ended = session_store.ask(Operation::End, ending).await?;
        session_store.remember_end(id);
        session_store.announce(Announcement::Ended(*id));
        self.last(ended)
    }

    /// Removes the attachment from a shared store if no gateway has used it for the idle time. Returns its last
    /// state to the one gateway that removed it.
    pub(in crate::union) async fn expire(
        &self,
        id: &SessionId,
    ) -> Result<Option<State>, PersistenceError> {
        let session_store = &self.session_store;
        let left = session_store.left_of_unused();
        let expiring = session_store.store.expire(&self.key, left);
        let expired = session_store.ask(Operation::Expire, expiring).await?;
        if expired.is_some() {
            session_store.remember_end(id);
            session_store.announce(Announcement::Ended(*id));
        }
        self.last(expired)
    }

    fn last(&self, ended: Option<Live>) -> Result<Option<State>, PersistenceError> {
        let Some(live) = ended else {
            return Ok(None);
        };
        self.session_store.note_ended();
        Ok(Some(self.open(&live)?.state))
    }

    /// Restarts the attachment's time in the store if part of it has passed.
    pub(in crate::union) fn touch(&self, attachment: &Arc<Attachment>) {
        let Some(touched) = self.session_store.due_touch(&self.touched) else {
            return;
        };
        let attachment = Arc::clone(attachment);
        self.session_store.tracker.spawn(async move {
            let Some(stored) = &attachment.stored else {
                return;
            };
            let session_store = &stored.session_store;
            let members = attachment.members();
            let members = members
                .iter()
                .map(|member| Key::of(member.server.as_ref(), &member.session));
            // Members have no idle time of their own.
            for key in members.chain([stored.key.clone()]) {
                let touching = session_store.store.touch(&key, session_store.ttl);
                if let Err(error) = session_store.ask(Operation::Touch, touching).await {
                    // The next use tries again.
                    stored.touched.store(touched, Ordering::Relaxed);
                    tracing::debug!(%error, "could not extend attachment in the store");
                    return;
                }
            }
        });
    }

    /// A number for a GET stream that is higher than any before at any gateway; `None` if the store is not shared
    /// or unavailable.
    pub(in crate::union) async fn next_number(&self) -> Option<u64> {
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

    /// The last such number; `None` if the attachment has ended.
    pub(in crate::union) async fn last_number(&self) -> Result<Option<u64>, StoreError> {
        let asking = self.session_store.store.last_number(&self.key);
        self.session_store.ask(Operation::LastNumber, asking).await
    }

    fn adopt(&self, attachment: &Attachment, version: Version, state: State) {
        *self.version.lock() = version;
        *attachment.state.lock() = state;
        self.was_seen();
        attachment.listening.members_changed();
    }

    fn was_seen(&self) {
        self.seen
            .fetch_max(self.session_store.now(), Ordering::Relaxed);
    }

    fn open(&self, live: &Live) -> Result<Record, PersistenceError> {
        let keys = &self.session_store.keys;
        let opened = keys.open_part(&self.key, Part::Record, live.version, &live.record)?;
        let mut record = Record::parse(&opened)?;
        record.state.shown = record.state.shown.shared(&self.shown);
        Ok(record)
    }

    fn sealed(
        &self,
        attachment: &Attachment,
        state: &State,
        version: Version,
    ) -> Result<Vec<u8>, PersistenceError> {
        let record = Record::of(attachment, state)?.to_bytes()?;
        let keys = &self.session_store.keys;
        Ok(keys.seal_part(&self.key, Part::Record, version, &record)?)
    }
}
