//! The last leg of a session that has ended: one task at one gateway has it, and ends it.

use std::sync::Arc;

use crate::leg::Leg;
use crate::session::Session;
use crate::upstream::Carried;

/// The last leg of a session that was ended by whoever has this: nobody else ends it at its server.
#[derive(Debug)]
#[must_use = "nobody else ends it at its server"]
pub(crate) struct LastLeg(Arc<Leg>);

impl LastLeg {
    /// That of a session which has just been ended, here and in its store.
    pub(super) fn of(session: &Session) -> Self {
        Self(session.leg())
    }

    /// Ends the server's session, if there is one.
    pub(crate) async fn end(self, carried: &Carried) {
        self.0.end(carried).await;
    }

    /// Ends nothing: the server has lost its session.
    pub(crate) fn forget(self) {}
}
