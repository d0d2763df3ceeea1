//! Cancels a request at its server.

use std::sync::Arc;

use bowline_wire::compose;
use bowline_wire::message::{RawId, RawIdBuf};

use crate::exchange::ping::doubt;
use crate::session::{Call, Session};
use crate::upstream::Carried;
use crate::upstream::budget::errand;
use bowline_egress::Sent;

/// The client cancelled the request with this id at another gateway, which sent the cancel to the
/// server with that id. If this gateway repeated the request under another id, only this gateway knows that
/// id, so it sends a cancel, too. A server ignores a cancel of an id that it does not know.
pub(crate) fn cancelled_elsewhere(session: &Arc<Session>, id: RawId<'_>) {
    session.calls.cancel(id);
    for name in session.calls.names(id) {
        cancel_for_client(session, &name);
    }
}

/// Cancels a request for the client, under the id that the server knows.
pub(crate) fn cancel_for_client(session: &Arc<Session>, name: &RawIdBuf) {
    send_cancel(Arc::clone(session), name, "cancelled by the client");
}

/// Cancels a request that got no answer in time. The server may hang.
pub(crate) fn give_up(session: &Arc<Session>, call: &Call) {
    let (leg, tracker) = (session.leg(), session.upstream.tracker().clone());
    let carried = session.carried(&Carried::default());
    for name in call.names() {
        send_cancel(Arc::clone(session), &name, "no response in time");
    }
    tracker.spawn(async move { doubt(&leg, &carried).await });
}

fn send_cancel(session: Arc<Session>, name: &RawIdBuf, reason: &str) {
    let cancelled = compose::cancelled(name.as_id(), reason);
    let tracker = session.upstream.tracker().clone();
    let limit = errand(&session.upstream.config().recovery);
    tracker.spawn(tokio::time::timeout(limit, async move {
        let leg = session.leg();
        if leg.is_lost() {
            // The request was lost with its session.
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
