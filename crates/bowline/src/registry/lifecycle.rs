//! How sessions end: by their client, by being lost, by nobody using them; here, in the store, and at the
//! upstream.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;

use super::{Registry, report};
use crate::leg::Leg;
use crate::session::Session;
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::Carried;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said so.
    Deleted,
    /// Nobody used it.
    Idle,
    /// The upstream no longer knows it.
    Lost,
    /// Its client left before it heard of it.
    Unclaimed,
    /// It lasted as long as a session may.
    TooOld,
}

// === impl Ending ===

impl Ending {
    /// The reason's name in logs.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Idle => "idle",
            Self::Lost => "lost",
            Self::Unclaimed => "unclaimed",
            Self::TooOld => "too_old",
        }
    }
}

// === impl Registry ===

impl Registry {
    /// Ends a session here and, as a courtesy, at its upstream. `false` if it had ended before.
    pub(crate) fn end_session(&self, id: &SessionId, ending: Ending, carried: &Carried) -> bool {
        let Some(session) = self.table.end(id) else {
            return false;
        };
        self.bury(session, ending, carried);
        true
    }

    /// The same for a session that a client ends: for all gateways, before it is told so. An error
    /// means that nobody knows whether it has ended.
    pub(crate) async fn delete_session(
        &self,
        id: &SessionId,
        session: &Arc<Session>,
        carried: &Carried,
    ) -> Result<bool, PersistenceError> {
        if !session.is_persisted() {
            return Ok(self.end_session(id, Ending::Deleted, carried));
        }
        let ended = session.end_for_all().await?;
        self.table.end(id);
        let Some(leg) = ended else {
            return Ok(false);
        };
        self.tell_end(session, Ending::Deleted);
        self.delete_upstream(leg, session.carried(carried));
        Ok(true)
    }

    fn bury(&self, session: Arc<Session>, ending: Ending, carried: &Carried) {
        self.tell_end(&session, ending);
        let carried = session.carried(carried);
        if !session.is_persisted() {
            if ending != Ending::Lost {
                self.delete_upstream(session.leg(), carried);
            }
            return;
        }
        self.tracker.spawn(async move {
            match session.end_for_all().await {
                Ok(Some(leg)) if ending != Ending::Lost => leg.end(&carried).await,
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(session = %session.hash, %error, "a session's end is not in the store");
                }
            }
        });
    }

    fn tell_end(&self, session: &Session, ending: Ending) {
        let server = &session.upstream.name;
        self.metrics.session_ended(server, ending.reason());
        tracing::info!(session = %session.hash, %server, reason = ending.reason(), "session ended");
        session.note_on(&session.leg(), "ended", ending.reason().to_owned());
        self.recently_ended
            .remember(session.hash, report::with_timeline(session));
    }

    /// Ends the upstream's session, as a courtesy.
    fn delete_upstream(&self, leg: Arc<Leg>, carried: Carried) {
        self.tracker.spawn(async move { leg.end(&carried).await });
    }

    /// Ends sessions that nobody used.
    pub(crate) async fn expire(&self, idle: Duration) {
        match self
            .table
            .session_store()
            .filter(|session_store| session_store.is_shared())
        {
            None => {
                for session in self.table.expire(idle) {
                    self.bury(session, Ending::Idle, &Carried::default());
                }
            }
            Some(session_store) => self.expire_shared(session_store).await,
        }
    }

    /// The same where gateways share them: only the store knows whether another has used one since. It
    /// is asked for one after the other, and while it does not answer, for none: they are tried again
    /// until the store itself lets them go.
    async fn expire_shared(&self, session_store: &SessionStore) {
        for session in self.table.unused(session_store.unused_after()) {
            if !session_store.is_reachable() {
                return;
            }
            match session.expire_for_all().await {
                Ok(Some(leg)) => {
                    self.table.end(&session.id);
                    self.tell_end(&session, Ending::Idle);
                    self.delete_upstream(leg, session.carried(&Carried::default()));
                }
                Ok(None) => self.table.let_go(&session.id),
                Err(error) => {
                    tracing::debug!(%error, "whether a session is used is not known");
                }
            }
        }
    }
}
