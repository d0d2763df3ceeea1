//! What was sent upstream goes on when the client that asked for it leaves; what was not is dropped.

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

/// How often an abandoned call looks whether its place is wanted.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where work goes on whose client left, and for how long: a server that never ends it must not
/// hold a session and a stream's place for ever. After the server's recovery budget it gives way
/// when places become scarce, and after `limit` in any case.
#[derive(Debug)]
pub(crate) struct Abandoned {
    upstream: Arc<Upstream>,
    share: Arc<Share>,
    limit: Duration,
}

/// A future that moves to a task of its own if it is dropped after its request was sent.
///
/// Until then it runs in the client's own task: no spawn and no channel for the common case.
pub(crate) struct Detachable<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    sent: Sent,
    abandoned: Abandoned,
}

/// Wraps `future`, whose request tells through `sent` that it has begun to leave.
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

    /// What becomes of a session's work whose client left.
    pub(crate) fn of(registry: &Registry, session: &Session) -> Self {
        Self::new(&session.upstream, &session.share, registry.idle)
    }

    /// Runs what is left, within the limit.
    pub(crate) fn see_out(&self, rest: impl Future<Output: Send + 'static> + Send + 'static) {
        let gives_way = gives_way(Arc::clone(&self.share), self.upstream.budget());
        let limited = tokio::time::timeout(self.limit, rest);
        self.upstream.tracker().spawn(async move {
            tokio::select! {
                biased;
                ended = limited => drop(ended),
                () = gives_way => tracing::debug!("a call whose client left gave way"),
            }
        });
    }
}

/// Waits until the place of an abandoned call is wanted, at least for `patience`.
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
