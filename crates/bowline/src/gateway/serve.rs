//! The gateway's listeners.

use std::sync::Arc;

use crate::front::response::refuse_connection;
use crate::guard::Guard;
use crate::hub::Shared;
use crate::listener::{self, Connection, ConnectionLimits, ConnectionRefusal, Door};
use crate::{admin, front};

/// Serves clients at this listener.
pub(super) fn clients(shared: &Arc<Shared>, door: impl Door) {
    let own = Arc::clone(shared);
    let serve = move |request, connection: &Arc<Connection>| {
        let anonymous = connection.is_anonymous().then(|| Arc::clone(connection));
        front::serve(Arc::clone(&own), request, connection.peer, anonymous)
    };
    let metrics = Arc::clone(&shared.metrics);
    let refuse = move |why: ConnectionRefusal| {
        let fault = why.fault();
        metrics.refused(fault.row().name);
        refuse_connection(&fault)
    };
    let limits = Arc::clone(&shared.connections);
    let accept = listener::accept(door, shared.drain.clone(), limits, refuse, serve);
    shared.tracker.spawn(accept);
}

/// Serves the operator at this listener.
pub(super) fn operator(shared: &Arc<Shared>, door: impl Door, guard: Guard) {
    let own = Arc::clone(shared);
    let serve = move |request, _: &Arc<Connection>| {
        std::future::ready(admin::serve(&own, &guard, &request))
    };
    let refuse = |why: ConnectionRefusal| {
        match why {
            ConnectionRefusal::User => {
                tracing::warn!("another user tried to use the operator's socket");
            }
            _ => tracing::warn!("too many connections of operators"),
        }
        refuse_connection(&why.fault())
    };
    let (limits, drain) = (ConnectionLimits::of_operators(), shared.admin_drain.clone());
    let accept = listener::accept(door, drain, limits, refuse, serve);
    shared.admin_drain.connections().spawn(accept);
}
