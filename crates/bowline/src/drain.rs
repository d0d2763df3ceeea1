//! A graceful stop: no new sessions, requests in flight finish, streams end.
//!
//! In three steps. First no new connection is accepted, and every response asks its client to close the
//! connection. A moment later idle connections are closed: closing them at once would break requests that
//! are already on their way. Then the stop waits for requests in flight, until the deadline.

use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How far stopping has got.
#[derive(Debug, Clone)]
pub(crate) struct Drain {
    begun: CancellationToken,
    closed: CancellationToken,
    /// The connections of clients.
    pub(crate) connections: TaskTracker,
    pub(crate) timeout: Duration,
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

    /// From now on no new connection is accepted.
    pub(crate) fn begin(&self) {
        self.begun.cancel();
        self.connections.close();
    }

    /// Where a client's connection is served.
    pub(crate) fn connections(&self) -> &TaskTracker {
        &self.connections
    }

    /// From now on connections close as soon as no request is in flight on them.
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
