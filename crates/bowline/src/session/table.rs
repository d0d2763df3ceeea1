//! All sessions of this gateway: open, find, end, expire.
//!
//! Kept in memory. Ending takes the entry out first, so nothing that is still under way for the
//! session can bring it back: there is no write that creates an entry but [`Vacancy::fill`], and
//! ids are never used twice.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::rand;
use bowline_wire::id::SessionId;
use parking_lot::Mutex;

use super::{InUse, Session};

/// Enough that two cores rarely meet at one lock.
const SHARDS: usize = 16;

/// The sessions of one gateway.
#[derive(Debug)]
pub(crate) struct Table {
    shards: [Mutex<HashMap<SessionId, Arc<Session>>>; SHARDS],
    taken: AtomicUsize,
    limit: usize,
}

/// A place for one more session, held while its leg opens.
#[derive(Debug)]
pub(crate) struct Vacancy {
    table: Arc<Table>,
}

// === impl Table ===

impl Table {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            shards: std::array::from_fn(|_| Mutex::default()),
            taken: AtomicUsize::new(0),
            limit,
        }
    }

    /// Takes a place, if there is one.
    pub(crate) fn reserve(self: &Arc<Self>) -> Option<Vacancy> {
        let free = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, free)
            .ok()?;
        Some(Vacancy {
            table: Arc::clone(self),
        })
    }

    /// The session with this id, in use from now on: expiry cannot come between.
    pub(crate) fn find(&self, id: &SessionId) -> Option<InUse> {
        self.shard(id).lock().get(id).map(Session::begin_use)
    }

    /// Ends a session: from now on its id is unknown and its streams are over.
    ///
    /// Returns the session to the one caller that ended it.
    pub(crate) fn end(&self, id: &SessionId) -> Option<Arc<Session>> {
        let session = self.shard(id).lock().remove(id)?;
        self.taken.fetch_sub(1, Ordering::AcqRel);
        session.end();
        Some(session)
    }

    /// Every session.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        let shards = self.shards.iter();
        shards
            .flat_map(|shard| shard.lock().values().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Ends every session of which nothing was used for `idle`.
    pub(crate) fn expire(&self, idle: Duration) -> Vec<Arc<Session>> {
        let mut expired = Vec::new();
        for shard in &self.shards {
            let is_stale = |_: &SessionId, session: &mut Arc<Session>| session.idle_for() >= idle;
            expired.extend(
                shard
                    .lock()
                    .extract_if(is_stale)
                    .map(|(_, session)| session),
            );
        }
        self.taken.fetch_sub(expired.len(), Ordering::AcqRel);
        expired.iter().for_each(|session| session.end());
        expired
    }

    fn shard(&self, id: &SessionId) -> &Mutex<HashMap<SessionId, Arc<Session>>> {
        // Ids are random, so any of their bytes spreads them evenly.
        &self.shards[usize::from(id.as_bytes()[0]) % SHARDS]
    }
}

// === impl Vacancy ===

impl Vacancy {
    /// Opens a session under a new id.
    pub(crate) fn fill(
        self,
        session: impl FnOnce(&SessionId) -> Session,
    ) -> Result<(SessionId, Arc<Session>), aws_lc_rs::error::Unspecified> {
        let mut random = [0; SessionId::BYTES];
        rand::fill(&mut random)?;
        let id = SessionId::from_random(random);
        let session = Arc::new(session(&id));
        self.table
            .shard(&id)
            .lock()
            .insert(id, Arc::clone(&session));
        // The place now belongs to the entry.
        self.table.taken.fetch_add(1, Ordering::AcqRel);
        Ok((id, session))
    }
}

impl Drop for Vacancy {
    fn drop(&mut self) {
        self.table.taken.fetch_sub(1, Ordering::AcqRel);
    }
}
