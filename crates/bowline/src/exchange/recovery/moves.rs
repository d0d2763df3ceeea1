//! Moving sessions off endpoints that drain and whose time is over, a few at a time.

use std::sync::Arc;

use tokio::time::Instant;

use crate::config::OnLoss;
use crate::exchange::recovery::{Cause, recover};
use crate::registry::Table;
use crate::session::Session;
use crate::upstream::Carried;

/// Begins the moves that are due, as far as there are places for them.
pub(crate) fn move_drained(table: &Table) {
    let due = table.all().into_iter().filter(is_due);
    for session in due {
        let Some(place) = session.upstream.moves.place() else {
            continue;
        };
        let tracker = session.upstream.tracker().clone();
        tracker.spawn(async move {
            let leg = session.leg();
            if recover(&session, &leg, Cause::Drained, &Carried::default())
                .await
                .is_err()
            {
                let server = session.upstream.config();
                let later = Instant::now() + server.recovery.budget;
                session.upstream.moves.rest_until(later);
            }
            drop(place);
        });
    }
}

/// Whether a session is to move now. One whose server waits for the client's answer is not: the
/// answer would come too late.
fn is_due(session: &Arc<Session>) -> bool {
    let upstream = &session.upstream;
    let recovery = &upstream.config().recovery;
    let endpoint = &session.leg().endpoint;
    endpoint.has_drained_for(recovery.drain_timeout)
        && recovery.on_loss == OnLoss::Recover
        && upstream.has_well_endpoint()
        && upstream.moves.may_begin()
        && !session.server_requests.are_open()
}
