//! Stopping without breaking anything.

use std::time::Duration;

use tokio::time::Instant;

use crate::hub::Shared;
use crate::leg::marks::StreamOrigin;

/// How long idle connections are kept for requests that are on their way. HTTP/1.1 has no way to
/// ask whether there is one.
const LINGER: Duration = Duration::from_secs(2);
/// How long streams that were ended may take to tell their clients.
const LAST_RESPONSES: Duration = Duration::from_secs(1);

/// Stops the gateway; the operator can watch until it is over.
pub(super) async fn stop(shared: &Shared) {
    drain_clients(shared).await;
    shared.processes.stop().await;
    shared.admin_drain.begin();
    shared.admin_drain.close();
    // They hold the store, which the next process may want to open.
    drop(tokio::time::timeout(LAST_RESPONSES, shared.admin_drain.connections.wait()).await);
}

async fn drain_clients(shared: &Shared) {
    let deadline = Instant::now() + shared.drain.timeout;
    shared.drain.begin();
    tracing::info!(within = ?shared.drain.timeout, "stopping");
    for session in shared.registry.table.all() {
        session.end_stream(&StreamOrigin::Standalone);
    }
    let all_gone = shared.drain.connections.wait();
    drop(tokio::time::timeout(LINGER.min(shared.drain.timeout), all_gone).await);
    shared.drain.close();
    shared
        .routes
        .all()
        .values()
        .for_each(|upstream| upstream.drop_idle_connections());
    shared.tracker.close();
    let everything = async {
        shared.drain.connections.wait().await;
        shared.tracker.wait().await;
    };
    if tokio::time::timeout_at(deadline, everything).await.is_ok() {
        return;
    }
    let (connections, tasks) = (shared.drain.connections.len(), shared.tracker.len());
    tracing::warn!(
        connections,
        tasks,
        "not everything finished before the stop timeout"
    );
    end_streams(shared);
    drop(tokio::time::timeout(LAST_RESPONSES, shared.drain.connections.wait()).await);
}

/// Ends all streams of all sessions.
pub(super) fn end_streams(shared: &Shared) {
    for session in shared.registry.table.all() {
        session.end_streams();
    }
}
