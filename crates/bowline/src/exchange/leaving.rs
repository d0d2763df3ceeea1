//! What a client's leaving means for its request, and for the stream that answers it. Its front says so, because it
//! depends on what the client speaks.
//!
//! A request that was not sent is dropped in any case.

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

/// What becomes of a request that was sent when its client leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It goes on: a client may disconnect at any time and means nothing by it. An answer that cannot be asked for again
    /// is read to its end, so that the server is not cut off.
    GoesOn,
}

/// What a client's leaving means, and how long a request goes on after it: a server that never answers must
/// not hold a session and a stream permit forever. After the server's recovery budget, an abandoned call
/// stops when permits become scarce; after `limit` it stops in any case.
#[derive(Debug)]
pub(crate) struct Departure {
    leaving: Leaving,
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
    departure: Departure,
}

// === impl Departure ===

impl Departure {
    pub(crate) fn new(
        leaving: Leaving,
        upstream: &Arc<Upstream>,
        share: &Arc<Share>,
        limit: Duration,
    ) -> Self {
        Self {
            leaving,
            upstream: Arc::clone(upstream),
            share: Arc::clone(share),
            limit,
        }
    }

    /// For a request of this session.
    pub(crate) fn of(leaving: Leaving, registry: &Registry, session: &Session) -> Self {
        Self::new(leaving, &session.upstream, &session.share, registry.idle)
    }

    /// Runs `future` for as long as the client is there, and after that as its leaving says. `sent` is set once its
    /// request has begun to leave.
    pub(crate) fn watch<F>(self, future: F, sent: Sent) -> Detachable<F>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Detachable {
            future: Some(Box::pin(future)),
            sent,
            departure: self,
        }
    }

    /// The client has left a request that runs. This is what is left to be done for it.
    pub(crate) fn left(&self, rest: impl Future<Output: Send + 'static> + Send + 'static) {
        match self.leaving {
            Leaving::GoesOn => self.see_out(rest),
        }
    }

    /// Runs the rest of an abandoned request in the background, within the limits.
    fn see_out(&self, rest: impl Future<Output: Send + 'static> + Send + 'static) {
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
            self.departure.left(future);
        }
    }
}
