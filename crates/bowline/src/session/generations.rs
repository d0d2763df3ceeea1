//! The generations of a session: which leg is its current one, and how the next one takes its place. What follows
//! from a new generation is part of that, so nobody who puts one in has to think of it.

use std::sync::Arc;

use parking_lot::MutexGuard;

use crate::leg::Leg;
use crate::leg::marks::StreamOrigin;
use crate::session::Session;
use crate::session::persistence::{Published, StoredState};
use crate::session_store::PersistenceError;

/// The current leg.
#[derive(Debug)]
pub(super) struct Current {
    leg: Arc<Leg>,
    /// The session has ended. This is final.
    ended: bool,
}

/// What became of a leg that was to be the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Put {
    New,
    /// The session already has this generation or a newer one.
    Known,
    /// The session has ended.
    Ended,
}

// === impl Current ===

impl Current {
    pub(super) fn new(leg: Arc<Leg>) -> Self {
        Self { leg, ended: false }
    }
}

// === impl Session ===

impl Session {
    /// The current leg.
    pub(crate) fn leg(&self) -> Arc<Leg> {
        Arc::clone(&self.leg.read().leg)
    }

    /// Whether it has ended here.
    pub(crate) fn has_ended(&self) -> bool {
        self.leg.read().ended
    }

    /// Marks the session as ended. The current leg stays its last one.
    pub(crate) fn end(&self) {
        self.leg.write().ended = true;
        self.end_streams();
    }

    /// Makes `leg` the session's current generation, here and, if the store is shared, for all gateways.
    /// No client message may be sent on it before this returns.
    pub(crate) async fn publish(
        self: &Arc<Self>,
        leg: &Arc<Leg>,
    ) -> Result<Published, PersistenceError> {
        if let Some(persistence) = &self.persistence {
            return persistence.publish(self, leg).await;
        }
        let put = self.advance(leg);
        self.react_to(put);
        Ok(put.into())
    }

    /// Makes `leg` the current one, unless the session has this generation or a newer one. The state of the store
    /// changes in the same step, so its lock is held meanwhile. What follows has no need of the lock.
    pub(super) fn put(&self, leg: &Arc<Leg>, stored: MutexGuard<'_, StoredState>) -> Published {
        let put = self.advance(leg);
        drop(stored);
        self.react_to(put);
        put.into()
    }

    /// The same for a leg that another gateway has opened. What lives here of the one before is given up at once: a
    /// request that has this gateway's old leg in its hands writes nothing more to it, whatever it checked before.
    pub(super) fn put_from_store(&self, leg: &Arc<Leg>, stored: MutexGuard<'_, StoredState>) {
        let before = self.leg();
        let put = self.advance(leg);
        if put == Put::New {
            before.abandon();
        }
        drop(stored);
        self.react_to(put);
    }

    /// Only the step, without what follows from it.
    fn advance(&self, leg: &Arc<Leg>) -> Put {
        let mut current = self.leg.write();
        if current.ended {
            return Put::Ended;
        }
        let (has, comes) = (current.leg.generation.number, leg.generation.number);
        // Two generations have the same number only after an older state of the store was restored.
        let is_other = || leg.upstream_session() != current.leg.upstream_session();
        if has > comes || (has == comes && !is_other()) {
            return Put::Known;
        }
        #[cfg(feature = "planted")]
        if crate::planted::has(crate::planted::Bug::HintsKept) {
            leg.tool_hints.keep(&current.leg.tool_hints);
        }
        // Before any request is sent on the new leg.
        self.watch_tools(leg);
        current.leg.replace();
        current.leg = Arc::clone(leg);
        Put::New
    }

    /// The consequences of a new generation: lists are reported as changed, open server requests are
    /// cancelled, and the GET stream is reopened.
    fn react_to(&self, put: Put) {
        if put != Put::New {
            return;
        }
        self.client_state.lists_changed();
        self.server_requests
            .take()
            .iter()
            .for_each(|question| self.cancel(question));
        let standalone = self.streams.lock().find(&StreamOrigin::Standalone);
        if let Some(stream) = standalone {
            stream.restart();
        }
    }
}

// === impl Published ===

impl From<Put> for Published {
    fn from(put: Put) -> Self {
        match put {
            Put::New | Put::Known => Self::Done,
            Put::Ended => Self::Ended,
        }
    }
}
