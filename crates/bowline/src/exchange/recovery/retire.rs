//! Parting from an upstream session that was left for another: it is ended once nothing of it is
//! under way any more.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::leg::Leg;
use crate::session::Session;
use crate::upstream::Carried;

/// Ends the upstream session of a generation that was left, when its exchanges have ended or its
/// endpoint's time is over. They hold the leg; this does not. Where other gateways share the session
/// they may have exchanges on it, too, which nobody here knows of: then only the time counts.
pub(crate) fn part(session: &Session, left: &Arc<Leg>, carried: &Arc<Carried>) {
    if !left.has_upstream_session() {
        return;
    }
    let (farewell, last_exchange) = oneshot::channel();
    if left.farewell.set(farewell).is_err() {
        // It was left before.
        return;
    }
    let twin = Arc::new(left.twin());
    let limit = left.upstream.config().recovery.drain_timeout;
    let carried = Arc::clone(carried);
    if session.is_shared() {
        let errands = &left.upstream.errands;
        errands.add(Instant::now() + limit, || twin.discard(carried));
        return;
    }
    left.upstream.tracker().clone().spawn(async move {
        // The channel closes, or the time is over: the same follows.
        drop(tokio::time::timeout(limit, last_exchange).await);
        twin.discard(carried);
    });
}
