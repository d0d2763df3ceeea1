//! Stopping without breaking anything: no new sessions, answers under way finish, streams end.
//!
//! In three steps. First nobody new is let in, and every answer asks its client to close the
//! connection. A moment later connections that nobody used meanwhile are closed: closing them at
//! once would meet requests that are already on their way. Then only what is under way is waited
//! for, until the deadline.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::gateway::Shared;
use crate::session::Born;

/// How long idle connections are kept for requests that are on their way. HTTP/1.1 has no way to
/// ask whether there is one.
const LINGER: Duration = Duration::from_secs(2);
/// How long streams that were ended may take to tell their clients.
const FAREWELL: Duration = Duration::from_secs(1);

/// How far stopping has got.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    begun: CancellationToken,
    closed: CancellationToken,
    /// The connections of clients.
    connections: TaskTracker,
    timeout: Duration,
}

impl Drain {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            begun: CancellationToken::new(),
            closed: CancellationToken::new(),
            connections: TaskTracker::new(),
            timeout,
        }
    }

    /// From now on nobody new is let in.
    pub(crate) fn begin(&self) {
        self.begun.cancel();
        self.connections.close();
    }

    /// Where a client's connection is served.
    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.connections
    }

    /// From now on connections close as soon as nothing is under way on them.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits for [`Drain::begin`].
    pub(crate) async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits for [`Drain::close`].
    pub(crate) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Runs something until connections close.
    pub(crate) fn until_closed<F: Future>(
        &self,
        task: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        self.closed.clone().run_until_cancelled_owned(task)
    }
}

/// Stops the gateway; the operator can watch until it is over.
pub(crate) async fn drain(shared: &Shared) {
    drain_clients(shared).await;
    shared.admin_drain.begin();
    shared.admin_drain.close();
}

async fn drain_clients(shared: &Shared) {
    let deadline = Instant::now() + shared.drain.timeout;
    shared.drain.begin();
    tracing::info!(within = ?shared.drain.timeout, "stopping");
    for session in shared.table.all() {
        session.end_stream(&Born::Standalone);
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
    tracing::warn!(connections, tasks, "not everything finished in time");
    end_streams(shared);
    drop(tokio::time::timeout(FAREWELL, shared.drain.connections.wait()).await);
}

/// Ends all streams of all sessions.
pub(crate) fn end_streams(shared: &Shared) {
    for session in shared.table.all() {
        session.end_streams();
    }
}
