//! The places of callers among the sessions, limited by their shares.
//!
//! A session holds its place from its opening to its end. While it is only in the store, this module
//! keeps the place for it, for as long as the session may be idle. A session that was opened at another
//! gateway, or before a restart, holds no place here.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::caller::Caller;
use crate::session::Session;
use crate::share::{Permit, ServerShares, Share, ShareOwner};

/// The places of one gateway.
#[derive(Debug)]
pub(crate) struct Places {
    common: Arc<Share>,
    callers: ServerShares,
    /// The places of sessions that are not cached, and since when.
    away: Mutex<HashMap<SessionId, (Permit, Instant)>>,
}

impl Places {
    pub(crate) fn new(limit: usize) -> Self {
        let common = Share::common(limit);
        Self {
            callers: ServerShares::of(&common),
            common,
            away: Mutex::default(),
        }
    }

    /// Computes the shares for this number of callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.common.share_out(1, callers);
    }

    /// Takes a place for one more session of this caller.
    pub(crate) fn take(&self, caller: &Caller) -> Result<Permit, ShareOwner> {
        let place = self.callers.of_caller(caller).take();
        place.ok_or_else(|| self.callers.exhausted())
    }

    /// Keeps the place of a session that leaves the cache without ending.
    pub(crate) fn set_aside(&self, session: &Session) {
        if let Some(place) = session.give_up_place() {
            let since = Instant::now();
            self.away.lock().insert(session.id, (place, since));
        }
    }

    /// Returns the place to a session that is cached again.
    pub(crate) fn take_back(&self, session: &Session) {
        if let Some((place, _)) = self.away.lock().remove(&session.id) {
            session.take_place(place);
        }
    }

    /// Frees the place of an uncached session that has ended.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.away.lock().remove(id);
    }

    /// Frees the places of sessions that were uncached for so long that only another gateway could have
    /// kept them alive.
    pub(crate) fn forget_after(&self, limit: Duration) {
        let mut away = self.away.lock();
        if !away.is_empty() {
            away.retain(|_, (_, since)| since.elapsed() < limit);
        }
    }
}
