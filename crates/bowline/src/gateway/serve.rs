//! The gateway's listeners.

use std::sync::Arc;

use crate::front::response::refuse_connection;
use crate::guard::Guard;
use crate::hub::Hub;
use crate::listener::{self, Connection, ConnectionLimits, ConnectionRefusal, Door};
use crate::{admin, front};

/// Serves clients at this listener.
pub(super) fn clients(hub: &Arc<Hub>, door: impl Door) {
    let own = Arc::clone(hub);
    let serve = move |request, connection: &Arc<Connection>| {
        front::serve(Arc::clone(&own), request, Arc::clone(connection))
    };
    let metrics = Arc::clone(&hub.metrics);
    let refuse = move |why: ConnectionRefusal| {
        let fault = why.fault();
        metrics.refused(fault.row().name);
        refuse_connection(&fault)
    };
    let limits = Arc::clone(&hub.connections);
    let accept = listener::accept(door, hub.drain.clone(), limits, refuse, serve);
    hub.tracker.spawn(accept);
}

/// Serves other gateways at this listener.
pub(super) fn peers(hub: &Arc<Hub>, door: impl Door) {
    let own = Arc::clone(hub);
    let serve = move |request, connection: &Arc<Connection>| {
        front::peer::serve(Arc::clone(&own), request, Arc::clone(connection))
    };
    let refuse = |why: ConnectionRefusal| {
        tracing::warn!("too many connections of other gateways");
        refuse_connection(&why.fault())
    };
    let limits = ConnectionLimits::of_peers(&hub.limits);
    let drain = hub.peer_drain.clone();
    let accept = listener::accept(door, drain, limits, refuse, serve);
    hub.peer_drain.connections().spawn(accept);
}

/// Serves the operator at this listener.
pub(super) fn operator(hub: &Arc<Hub>, door: impl Door, guard: Guard) {
    let own = Arc::clone(hub);
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
    let (limits, drain) = (ConnectionLimits::of_operators(), hub.admin_drain.clone());
    let accept = listener::accept(door, drain, limits, refuse, serve);
    hub.admin_drain.connections().spawn(accept);
}
