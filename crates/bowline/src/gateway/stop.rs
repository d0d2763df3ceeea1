//! Stopping without breaking anything.

use std::time::Duration;

use tokio::time::Instant;

use crate::hub::Hub;
use crate::leg::marks::StreamOrigin;

/// How long idle connections are kept for requests that are on their way. HTTP/1.1 has no way to
/// ask whether there is one.
const LINGER: Duration = Duration::from_secs(2);
/// How long streams that were ended may take to tell their clients.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// Stops the gateway; the operator can watch until it is over.
pub(super) async fn stop(hub: &Hub) {
    drain_clients(hub).await;
    hub.peer_drain.begin();
    hub.peer_drain.close();
    // From then on nothing says that this gateway is present.
    drop(tokio::time::timeout(LAST_RESPONSES, hub.peer_drain.connections.wait()).await);
    hub.channels.stop().await;
    hub.admin_drain.begin();
    hub.admin_drain.close();
    // They hold the store, which the next process may want to open.
    drop(tokio::time::timeout(LAST_RESPONSES, hub.admin_drain.connections.wait()).await);
}

async fn drain_clients(hub: &Hub) {
    let deadline = Instant::now() + hub.drain.timeout;
    hub.drain.begin();
    tracing::info!(within = ?hub.drain.timeout, "stopping");
    hub.unions.end_streams();
    for session in hub.registry.table.all() {
        session.end_stream(&StreamOrigin::Standalone);
    }
    let all_gone = hub.drain.connections.wait();
    drop(tokio::time::timeout(LINGER.min(hub.drain.timeout), all_gone).await);
    hub.drain.close();
    hub.routes
        .all()
        .values()
        .for_each(|upstream| upstream.drop_idle_connections());
    hub.tracker.close();
    hub.forwards.close();
    if let Some(peers) = &hub.peers {
        peers.drop_idle_connections();
    }
    let everything = async {
        hub.drain.connections.wait().await;
        hub.tracker.wait().await;
        // Until then the other gateways find this one, and get from it what nothing here uses any more.
        hub.forwards.wait().await;
    };
    if tokio::time::timeout_at(deadline, everything).await.is_ok() {
        return;
    }
    let (connections, tasks) = (hub.drain.connections.len(), hub.tracker.len());
    tracing::warn!(
        connections,
        tasks,
        "not everything finished before the stop timeout"
    );
    end_streams(hub);
    drop(tokio::time::timeout(LAST_RESPONSES, hub.drain.connections.wait()).await);
}

/// Ends all streams of all sessions.
pub(super) fn end_streams(hub: &Hub) {
    for session in hub.registry.table.all() {
        session.end_streams();
    }
}
