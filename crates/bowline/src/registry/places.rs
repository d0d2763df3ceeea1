//! The places that callers have among the sessions: as many as their share allows.
//!
//! A session has its place from its opening to its end, also while it is only in the store: it is
//! then remembered here, for as long as it may rest. What was opened at another gateway,
//! or before a restart, has its place there.

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
    /// Of sessions that are not at hand, and since when.
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

    /// Shares out anew.
    pub(crate) fn share_out(&self, callers: usize) {
        self.common.share_out(1, callers);
    }

    /// Takes a place for one more session of this caller.
    pub(crate) fn take(&self, caller: &Caller) -> Result<Permit, ShareOwner> {
        let place = self.callers.of_caller(caller).take();
        place.ok_or_else(|| self.callers.exhausted())
    }

    /// A session is no longer at hand, and has not ended.
    pub(crate) fn let_go(&self, session: &Session) {
        if let Some(place) = session.give_up_place() {
            let since = Instant::now();
            self.away.lock().insert(session.id, (place, since));
        }
    }

    /// It is at hand again.
    pub(crate) fn take_back(&self, session: &Session) {
        if let Some((place, _)) = self.away.lock().remove(&session.id) {
            session.take_place(place);
        }
    }

    /// A session that is not at hand has ended.
    pub(crate) fn forget(&self, id: &SessionId) {
        self.away.lock().remove(id);
    }

    /// Forgets sessions that have been away for so long that they are over unless another gateway uses them.
    pub(crate) fn forget_after(&self, limit: Duration) {
        let mut away = self.away.lock();
        if !away.is_empty() {
            away.retain(|_, (_, since)| since.elapsed() < limit);
        }
    }
}
