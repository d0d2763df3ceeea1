//! A reserved place for one more session, within the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::table::{Entry, Table};
use crate::caller::Caller;
use crate::session::Session;
use crate::session::persistence::Persistence;
use crate::session_store::PersistenceError;
use crate::share::{Permit, ShareOwner};

/// A reserved place for one more session, held while its leg opens.
#[derive(Debug)]
pub(crate) struct Vacancy {
    table: Arc<Table>,
    place: Option<Permit>,
}

// === impl Table ===

impl Table {
    /// Takes a place of this caller for something that is no session and is kept as long as one.
    pub(crate) fn take_place(&self, caller: &Caller) -> Result<Permit, ShareOwner> {
        self.places.take(caller)
    }

    /// Reserves a place for one more session of this caller, if there is one. With a store, every
    /// session in it occupies a place, cached or not.
    pub(crate) fn reserve(self: &Arc<Self>, caller: &Caller) -> Result<Vacancy, ShareOwner> {
        let place = self.places.take(caller)?;
        let take = |places: &AtomicUsize, others: &dyn Fn() -> usize| {
            let free = |taken| (taken + others() < self.limit).then_some(taken + 1);
            places
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, free)
                .map_err(|_| ShareOwner::Gateway)
        };
        match &self.session_store {
            None => {
                take(&self.taken, &|| 0)?;
                self.opening.fetch_add(1, Ordering::AcqRel);
            }
            Some(session_store) => {
                take(&self.opening, &|| session_store.sessions())?;
                self.taken.fetch_add(1, Ordering::AcqRel);
            }
        }
        Ok(Vacancy {
            table: Arc::clone(self),
            place: Some(place),
        })
    }
}

// === impl Vacancy ===

impl Vacancy {
    /// Opens a session. With a store, the session is written there before its client receives the id; if
    /// that fails, the session is returned.
    pub(crate) async fn fill(
        mut self,
        session: Session,
    ) -> Result<Arc<Session>, (PersistenceError, Arc<Session>)> {
        let session = match &self.table.session_store {
            None => Arc::new(session),
            Some(session_store) => {
                let persistence =
                    Persistence::new(session_store, &session.id, session.upstream.name.as_ref());
                let session = Arc::new(session.persisted_by(persistence));
                Box::pin(session.create())
                    .await
                    .map_err(|unsure| (unsure, Arc::clone(&session)))?;
                session
            }
        };
        if let Some(place) = self.place.take() {
            session.take_place(place);
        }
        let mut shard = self.table.shard(&session.id).lock();
        shard.insert(Entry(Arc::clone(&session)));
        // The entry in the table now owns the place.
        self.table.taken.fetch_add(1, Ordering::AcqRel);
        drop(shard);
        // It is cached now, and no longer being opened.
        let table = Arc::clone(&self.table);
        drop(self);
        table.make_room(&session);
        Ok(session)
    }
}

impl Drop for Vacancy {
    fn drop(&mut self) {
        self.table.taken.fetch_sub(1, Ordering::AcqRel);
        self.table.opening.fetch_sub(1, Ordering::AcqRel);
    }
}
