//! The sessions in this gateway's memory: open, find, end, expire.
//!
//! Without a store, these are all sessions. With one, this is a near cache of it ([`SessionStore`]): a
//! session that is not cached is looked up in the store, and unused ones are evicted when the cache is
//! full. Ending a session removes its entry first, so that no pending operation can bring it back: ids
//! are never reused.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bowline_store::StoreError;
use bowline_wire::id::SessionId;
use parking_lot::Mutex;

use crate::caller::Caller;
use crate::registry::id_hasher::BuildIdHasher;
use crate::registry::places::Places;
use crate::session::persistence::Persistence;
use crate::session::{InUse, Session};
use crate::session_store::{PersistenceError, SessionStore};
use crate::share::memory::{Memory, Room};
use crate::upstream::Upstream;

/// Enough that two cores rarely contend for one lock.
const SHARDS: usize = 16;

/// Openings of up to this many bytes are bounded by the number of sessions; the memory of all larger ones is so many
/// times this.
const OPENING: usize = 4 * 1024;
const OPENINGS: usize = 16 * 1024;

/// The fraction of a shard that is evicted at once when the cache is full: one in so many.
const GIVES_WAY: usize = 8;

/// The sessions of one gateway.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) shards: [Mutex<Shard>; SHARDS],
    /// Places in use here: cached sessions, and sessions that are being opened.
    pub(super) taken: AtomicUsize,
    /// Sessions that are being opened.
    pub(super) opening: AtomicUsize,
    pub(super) limit: usize,
    /// The places of each caller.
    pub(super) places: Places,
    /// The memory of openings that are kept.
    openings: Memory,
    pub(super) session_store: Option<Arc<SessionStore>>,
    /// How many sessions of the store are cached.
    pub(super) cache: usize,
}

/// Sessions, hashed by the id that each of them contains. This keeps the table small enough for the CPU
/// cache.
pub(super) type Shard = HashSet<Entry, BuildIdHasher>;

#[derive(Debug)]
pub(super) struct Entry(pub(super) Arc<Session>);

// === impl Table ===

impl Table {
    /// A table of at most `limit` sessions.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            taken: AtomicUsize::new(0),
            opening: AtomicUsize::new(0),
            limit,
            places: Places::new(limit),
            openings: Memory::new(OPENINGS, OPENING, 1),
            session_store: None,
            cache: limit,
        }
    }

    /// Adds a store, of which `cache` sessions are cached.
    pub(crate) fn over(self, session_store: Arc<SessionStore>, cache: usize) -> Self {
        Self {
            session_store: Some(session_store),
            cache,
            ..self
        }
    }

    pub(crate) fn session_store(&self) -> Option<&Arc<SessionStore>> {
        self.session_store.as_ref()
    }

    /// Divides the places among this number of callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.places.share_out(callers);
        self.openings.share_out(callers);
    }

    /// Room for a caller's `initialize` of so many bytes, with what it carries, for as long as it is kept.
    pub(crate) fn keep_opening(&self, caller: &Caller, bytes: usize) -> Option<Room> {
        self.openings.take(caller, bytes)
    }

    /// Finds a session of this server by its id and marks it as in use, so that it cannot expire
    /// meanwhile.
    pub(crate) async fn find(
        &self,
        id: &SessionId,
        upstream: &Arc<Upstream>,
    ) -> Result<Option<InUse>, PersistenceError> {
        let found = match (&self.session_store, self.cached(id)) {
            (None, found) => found,
            (Some(_), Some(in_use)) if in_use.session().is_fresh() => Some(in_use),
            (Some(session_store), cached) => {
                Box::pin(self.look_up(session_store, id, upstream, cached)).await?
            }
        };
        // A server of the same name may have been configured since.
        Ok(found.filter(|in_use| Arc::ptr_eq(&in_use.session().upstream, upstream)))
    }

    pub(crate) fn cached(&self, id: &SessionId) -> Option<InUse> {
        self.shard(id).lock().get(id).map(Entry::begin_use)
    }

    pub(crate) fn has_cached(&self, id: &SessionId) -> bool {
        self.shard(id).lock().contains(id)
    }

    async fn look_up(
        &self,
        session_store: &Arc<SessionStore>,
        id: &SessionId,
        upstream: &Arc<Upstream>,
        cached: Option<InUse>,
    ) -> Result<Option<InUse>, PersistenceError> {
        if let Some(in_use) = cached {
            let is_there = in_use.session().refresh().await?;
            match is_there {
                // Before the session expires in the middle of this use.
                true => in_use.session().outlast_use(),
                false => drop(self.end(id)),
            }
            return Ok(is_there.then_some(in_use));
        }
        let loaded = Persistence::load(session_store, id, upstream).await?;
        let found = loaded.and_then(|session| self.insert(Arc::new(session)));
        if let Some(in_use) = &found {
            in_use.session().outlast_use();
        }
        Ok(found)
    }

    /// Caches a session that was loaded from the store, unless another task was faster.
    fn insert(&self, session: Arc<Session>) -> Option<InUse> {
        let id = &session.id;
        let mut shard = self.shard(id).lock();
        if let Some(known) = shard.get(id) {
            return Some(known.begin_use());
        }
        // The session may have ended while it was loaded.
        if self
            .session_store
            .as_ref()
            .is_some_and(|session_store| session_store.has_ended(id))
        {
            return None;
        }
        let in_use = session.begin_use();
        self.places.take_back(&session);
        shard.insert(Entry(session));
        self.taken.fetch_add(1, Ordering::AcqRel);
        drop(shard);
        self.make_room(in_use.session());
        Some(in_use)
    }

    /// Evicts the least recently used sessions of one shard, and of the next ones if it takes that, so that a session
    /// more has room in the cache. They stay in the store.
    pub(super) fn make_room(&self, newest: &Session) {
        if self.session_store.is_none() {
            return;
        }
        let first = shard_number(&newest.id) + 1;
        for number in first..first + SHARDS {
            let opening = self.opening.load(Ordering::Acquire);
            let cached = self.taken.load(Ordering::Acquire).saturating_sub(opening);
            if cached <= self.cache {
                return;
            }
            self.evict(
                &mut self.shards[number % SHARDS].lock(),
                cached - self.cache,
            );
        }
    }

    /// Evicts so many sessions of a shard, or more.
    #[expect(
        clippy::mutable_key_type,
        reason = "the id of a session does not change"
    )]
    fn evict(&self, shard: &mut Shard, too_many: usize) {
        let mut idle: Vec<(Duration, SessionId)> = shard
            .iter()
            .filter(|Entry(session)| session.is_at_rest())
            .map(|Entry(session)| (session.idle_for(), session.id))
            .collect();
        let going = too_many.max(shard.len() / GIVES_WAY).min(idle.len());
        if going == 0 {
            return;
        }
        idle.select_nth_unstable_by(going - 1, |one, other| other.0.cmp(&one.0));
        for (_, id) in &idle[..going] {
            if let Some(Entry(session)) = shard.take(id) {
                self.places.set_aside(&session);
            }
        }
        self.taken.fetch_sub(going, Ordering::AcqRel);
    }

    /// Ends a session: its id is now unknown here and its streams are over.
    ///
    /// Only one caller gets the session: the one that ended it.
    pub(crate) fn end(&self, id: &SessionId) -> Option<Arc<Session>> {
        let Some(Entry(session)) = self.shard(id).lock().take(id) else {
            self.places.forget(id);
            return None;
        };
        self.taken.fetch_sub(1, Ordering::AcqRel);
        drop(session.give_up_place());
        session.end();
        Some(session)
    }

    /// The number of cached sessions.
    pub(crate) fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// All cached sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.lock().iter().map(Entry::session).collect::<Vec<_>>())
            .collect()
    }

    /// Extends the time in the store of sessions in use here, and repeats writes that failed.
    pub(crate) fn keep_up(&self) {
        if self.session_store.is_none() {
            return;
        }
        for shard in &self.shards {
            for Entry(session) in shard.lock().iter() {
                session.outlast_use();
                session.catch_up();
            }
        }
    }

    /// The cached sessions for which this holds.
    pub(crate) fn those(&self, holds: impl Fn(&Session) -> bool) -> Vec<Arc<Session>> {
        let mut those = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let some = shard.iter().filter(|Entry(one)| holds(one));
            those.extend(some.map(Entry::session));
        }
        those
    }

    /// The cached sessions with open streams.
    pub(crate) fn streaming(&self) -> Vec<Arc<Session>> {
        self.those(|one| one.live_streams() > 0)
    }

    /// Ends every session that was unused for `idle`.
    pub(crate) fn expire(&self, idle: Duration) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let stale = shard.extract_if(|Entry(session)| session.idle_for() >= idle);
            expired.extend(stale.map(|Entry(session)| session));
        }
        self.taken.fetch_sub(expired.len(), Ordering::AcqRel);
        for session in &expired {
            drop(session.give_up_place());
            session.end();
        }
        self.places.forget_after(idle);
        expired
    }

    /// The cached sessions that were unused here for `idle`.
    pub(crate) fn unused(&self, idle: Duration) -> Vec<Arc<Session>> {
        self.places.forget_after(idle);
        self.those(|one| one.idle_for() >= idle)
    }

    /// Drops an unused session from the cache. If it is alive, the store has it.
    pub(crate) fn uncache(&self, id: &SessionId) {
        let mut shard = self.shard(id).lock();
        if shard
            .get(id)
            .is_some_and(|Entry(session)| session.is_at_rest())
            && let Some(Entry(session)) = shard.take(id)
        {
            self.places.set_aside(&session);
            self.taken.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Ends GET streams here whose clients have opened newer ones elsewhere, because announcements can
    /// be missed. The store is asked for one session after the other; the round stops at the first
    /// failure.
    pub(crate) async fn end_overtaken(&self) -> Result<(), StoreError> {
        for session in self.those(Session::listens) {
            session.give_way_to_newer().await?;
        }
        Ok(())
    }

    pub(super) fn shard(&self, id: &SessionId) -> &Mutex<Shard> {
        &self.shards[shard_number(id)]
    }
}

/// Ids are random, so any byte distributes them evenly.
fn shard_number(id: &SessionId) -> usize {
    usize::from(id.as_bytes()[0]) % SHARDS
}

// === impl Entry ===

impl Entry {
    fn session(&self) -> Arc<Session> {
        Arc::clone(&self.0)
    }

    fn begin_use(&self) -> InUse {
        self.0.begin_use()
    }
}

impl Borrow<SessionId> for Entry {
    fn borrow(&self) -> &SessionId {
        &self.0.id
    }
}

impl Hash for Entry {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for Entry {}

// === impl Session ===

impl Session {
    /// Whether the cached copy may be used without asking the store.
    fn is_fresh(&self) -> bool {
        self.persistence
            .as_deref()
            .is_none_or(Persistence::is_fresh)
    }

    /// Brings the cached copy up to date with the store. `false`: the session has ended.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<bool, PersistenceError> {
        match &self.persistence {
            None => Ok(true),
            Some(persistence) => persistence.refresh(self).await,
        }
    }

    pub(super) async fn create(&self) -> Result<(), PersistenceError> {
        match &self.persistence {
            None => Ok(()),
            Some(persistence) => persistence.create(self).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::MAX_OPENING;

    #[test]
    fn large_openings_have_a_memory_that_is_bounded_and_comes_back() {
        let table = Table::new(1_000_000);
        let keep = |bytes| table.keep_opening(&Caller::Local, bytes);
        let mut kept: Vec<_> = std::iter::from_fn(|| keep(MAX_OPENING)).collect();
        assert_eq!(kept.len() * MAX_OPENING, 64 << 20);
        assert!(keep(OPENING).is_some());
        kept.pop();
        assert!(keep(MAX_OPENING).is_some());
    }
}
