//! Parting from an upstream session that was left for another: it is ended once nothing of it is
//! under way any more.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::Leg;
use super::restore::discard;

/// Tells whoever waits for it that a generation's last exchange has ended: by being dropped with it.
pub(super) type Farewell = oneshot::Sender<std::convert::Infallible>;

/// Ends the upstream session of a generation that was left, when its exchanges have ended or its
/// endpoint's time is over. They hold the leg; this does not.
pub(super) fn part(left: &Arc<Leg>) {
    if !left.has_upstream_session() {
        return;
    }
    let (farewell, last_exchange) = oneshot::channel();
    if left.farewell.set(farewell).is_err() {
        // It was left before.
        return;
    }
    let twin = Arc::new(left.twin());
    let limit = left.upstream.server().recovery.drain_timeout;
    left.upstream.tracker().clone().spawn(async move {
        // The channel closes, or the time is over: the same follows.
        drop(tokio::time::timeout(limit, last_exchange).await);
        discard(&twin);
    });
}
