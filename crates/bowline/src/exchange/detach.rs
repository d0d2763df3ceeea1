//! Requests that were sent upstream continue when their client disconnects. Requests that were not sent are
//! dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bowline_egress::Sent;

use crate::registry::Registry;
use crate::session::Session;
use crate::share::Share;
use crate::upstream::Upstream;

/// How often an abandoned call checks whether its stream permit is needed.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How requests continue after their client disconnected, and for how long: a server that never answers must
/// not hold a session and a stream permit forever. After the server's recovery budget, an abandoned call
/// stops when permits become scarce; after `limit` it stops in any case.
#[derive(Debug)]
pub(crate) struct Abandoned {
    upstream: Arc<Upstream>,
    share: Arc<Share>,
    limit: Duration,
}

/// A future that moves to a task of its own if it is dropped after its request was sent.
///
/// Until then it runs in the client's task, so the common case needs no spawn and no channel.
pub(crate) struct Detachable<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    sent: Sent,
    abandoned: Abandoned,
}

/// Wraps `future`. `sent` is set once its request has begun to leave.
pub(crate) fn detachable<F>(future: F, sent: Sent, abandoned: Abandoned) -> Detachable<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    Detachable {
        future: Some(Box::pin(future)),
        sent,
        abandoned,
    }
}

// === impl Abandoned ===

impl Abandoned {
    pub(crate) fn new(upstream: &Arc<Upstream>, share: &Arc<Share>, limit: Duration) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            share: Arc::clone(share),
            limit,
        }
    }

    /// The limits for this session's abandoned requests.
    pub(crate) fn of(registry: &Registry, session: &Session) -> Self {
        Self::new(&session.upstream, &session.share, registry.idle)
    }

    /// Runs the rest of an abandoned request in the background, within the limits.
    pub(crate) fn see_out(&self, rest: impl Future<Output: Send + 'static> + Send + 'static) {
        let gives_way = gives_way(Arc::clone(&self.share), self.upstream.budget());
        let limited = tokio::time::timeout(self.limit, rest);
        self.upstream.tracker().spawn(async move {
            tokio::select! {
                biased;
                ended = limited => drop(ended),
                () = gives_way => tracing::debug!("abandoned call stopped"),
            }
        });
    }
}

/// Waits at least for `patience`, then until stream permits are scarce.
async fn gives_way(share: Arc<Share>, patience: Duration) {
    tokio::time::sleep(patience).await;
    while !share.is_scarce() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

// === impl Detachable ===

impl<F> Future for Detachable<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.future else {
            return Poll::Pending;
        };
        let output = std::task::ready!(future.as_mut().poll(cx));
        self.future = None;
        Poll::Ready(output)
    }
}

impl<F> Drop for Detachable<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some(future) = self.future.take()
            && self.sent.get()
        {
            self.sent.leave();
            self.abandoned.see_out(future);
        }
    }
}
