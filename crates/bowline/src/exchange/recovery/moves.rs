//! Moves sessions off draining endpoints whose `drain_timeout` has passed, a few at a time.

use std::sync::Arc;

use tokio::time::Instant;

use crate::config::OnLoss;
use crate::exchange::recovery::{Cause, recover};
use crate::registry::Table;
use crate::session::Session;
use crate::upstream::Carried;

/// Starts the moves that are due, up to the limit.
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

/// Whether a session should move now. It stays while its server waits for a response of the client, which
/// would be lost.
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
