//! Retires an upstream session that was replaced: it is ended once no exchange uses it.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::leg::Leg;
use crate::session::Session;
use crate::upstream::Carried;

/// Ends the upstream session of a replaced generation when its exchanges have ended or `drain_timeout` has
/// passed. The exchanges hold the leg; this does not. If other gateways share the session they may have
/// exchanges on it, which this gateway does not know; then only the timeout counts.
pub(crate) fn part(session: &Session, left: &Arc<Leg>, carried: &Arc<Carried>) {
    if !left.has_upstream_session() {
        return;
    }
    let (farewell, last_exchange) = oneshot::channel();
    if left.farewell.set(farewell).is_err() {
        // It was retired before.
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
        // The channel closes or the timeout passes: either way the session is ended.
        drop(tokio::time::timeout(limit, last_exchange).await);
        twin.discard(carried);
    });
}
