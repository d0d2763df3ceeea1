//! How sessions end: the client ends them, the upstream loses them, or they expire unused. Each end
//! takes effect here, in the store, and at the upstream.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::id::SessionId;

use super::{Registry, report};
use crate::session::{LastLeg, Session};
use crate::session_store::{PersistenceError, SessionStore};
use crate::upstream::Carried;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client deleted it.
    Deleted,
    /// It was not used for the idle time.
    Idle,
    /// The upstream no longer knows it.
    Lost,
    /// Its client disconnected before it received the id.
    Unclaimed,
    /// It reached the maximum age.
    TooOld,
}

// === impl Ending ===

impl Ending {
    /// The reason as it appears in logs.
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
    /// Ends a session here and, as a courtesy, at its upstream. `false`: it had already ended.
    pub(crate) fn end_session(&self, id: &SessionId, ending: Ending, carried: &Carried) -> bool {
        let Some(session) = self.table.end(id) else {
            return false;
        };
        self.bury(session, ending, carried);
        true
    }

    /// Ends a session for its client, at all gateways, before the client gets the response. After an
    /// error it is unknown whether the session has ended.
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
        let Some(last) = ended else {
            return Ok(false);
        };
        self.tell_end(session, Ending::Deleted);
        self.delete_upstream(last, session.carried(carried));
        Ok(true)
    }

    fn bury(&self, session: Arc<Session>, ending: Ending, carried: &Carried) {
        self.tell_end(&session, ending);
        let carried = session.carried(carried);
        self.tracker.spawn(async move {
            match session.end_for_all().await {
                Ok(Some(last)) if ending == Ending::Lost => last.forget(),
                Ok(Some(last)) => last.end(&carried).await,
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(session = %session.hash, %error, "could not persist the end of a session");
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
    fn delete_upstream(&self, last: LastLeg, carried: Carried) {
        self.tracker.spawn(async move { last.end(&carried).await });
    }

    /// Whether what a client holds may not last any longer, used or not.
    pub(crate) fn is_too_old(&self, age: impl FnOnce() -> Duration) -> bool {
        self.max_age.is_some_and(|max_age| age() >= max_age)
    }

    /// Ends sessions that are too old, with their streams. A member's age is that of its attachment, which ends
    /// it.
    fn end_too_old(&self) {
        let is_too_old = |session: &Session| {
            self.is_too_old(|| session.age()) && !session.leg().generation.is_of_member()
        };
        for session in self.table.those(is_too_old) {
            self.end_session(&session.id, Ending::TooOld, &Carried::default());
        }
    }

    /// Ends sessions that are too old, and unused ones.
    pub(crate) async fn expire(&self, idle: Duration) {
        self.end_too_old();
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

    /// Ends unused sessions of a shared store, which alone knows whether another gateway has used one
    /// since. It is asked for one session after the other; the round ends when the store
    /// is unavailable. Remaining sessions are tried again until they expire in the store.
    async fn expire_shared(&self, session_store: &SessionStore) {
        for session in self.table.unused(session_store.unused_after()) {
            if !session_store.is_reachable() {
                return;
            }
            match session.expire_for_all().await {
                Ok(Some(last)) => {
                    self.table.end(&session.id);
                    self.tell_end(&session, Ending::Idle);
                    self.delete_upstream(last, session.carried(&Carried::default()));
                }
                Ok(None) => self.table.uncache(&session.id),
                Err(error) => {
                    tracing::debug!(%error, "could not check whether a session is in use");
                }
            }
        }
    }
}
