//! Telling a server that nobody waits for a request any more.

use std::sync::Arc;

use bowline_wire::compose;

use crate::session::Session;
use crate::upstream::Carried;
use crate::upstream::budget::errand;
use bowline_egress::Sent;

/// The client cancelled the request with this id (JSON text) at another gateway, which has told the
/// server so under that very id. The server may know it by another one, and only this gateway does; where
/// it does not, or no longer, a cancel of an id that it does not know means nothing to it.
pub(crate) fn cancelled_elsewhere(session: &Arc<Session>, id: &str) {
    session.calls.cancel(id);
    if let Some(sent_as) = session.calls.sent_as(id) {
        tell(Arc::clone(session), &sent_as, "cancelled by the client");
    }
}

/// The client is told that nobody waits for a request any more: so is the server.
pub(crate) fn cancel(session: Arc<Session>, id: &str, reason: &str) {
    let sent_as = session.calls.sent_as(id);
    tell(session, sent_as.as_deref().unwrap_or(id), reason);
}

fn tell(session: Arc<Session>, id: &str, reason: &str) {
    let cancelled = compose::cancelled(id, reason);
    let tracker = session.upstream.tracker().clone();
    let limit = errand(&session.upstream.config().recovery);
    tracker.spawn(tokio::time::timeout(limit, async move {
        let leg = session.leg();
        if leg.is_lost() {
            // It took the request with it.
            return true;
        }
        let carried = session.carried(&Carried::default());
        let link = leg.link(&carried);
        leg.upstream
            .notify(link, cancelled.into(), Sent::default())
            .await
            .is_ok()
    }));
}
