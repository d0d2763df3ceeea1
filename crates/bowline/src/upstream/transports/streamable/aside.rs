//! Requests that are sent in a task of their own. Over HTTP+SSE the answer comes on the stream, possibly before that
//! of the POST; and a call that is given up must not cut its request in the middle.

use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_egress::{EgressError, Pool, Request, Sent, UpstreamBody, WireError, read_limited};
use http::Response;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::upstream::transports::answer::MAX_READ_OUT;
use crate::upstream::transports::live::{LiveChannels, Recipient, Routing};
use crate::upstream::transports::pair::LateCookies;

/// Where a request is sent that has a task of its own.
#[derive(Debug, Clone)]
pub(in crate::upstream::transports) struct Aside<'a> {
    pub(in crate::upstream::transports) tasks: &'a TaskTracker,
    /// Ends the task.
    pub(in crate::upstream::transports) closing: &'a CancellationToken,
    /// Whether any byte of the request was written.
    pub(in crate::upstream::transports) sent: Sent,
    /// Notified when that is so.
    pub(in crate::upstream::transports) begun: Arc<Notify>,
    /// Asked right before the first byte is written: whether the session is still this gateway's. Nobody else can
    /// have one that is being opened.
    pub(in crate::upstream::transports) channels: Option<&'a Arc<LiveChannels>>,
    /// Asked at the same time: whether the session has a newer generation.
    pub(in crate::upstream::transports) is_replaced: &'a Arc<AtomicBool>,
    /// Asked at the same time: whether the stream has ended, on which the answer comes.
    pub(in crate::upstream::transports) routing: &'a Arc<Routing>,
    /// Where cookies of an answer go that nobody waits for any more.
    pub(in crate::upstream::transports) late: &'a LateCookies,
    /// The call that the request makes. It learns of a failure that comes when it is waited for no longer.
    pub(in crate::upstream::transports) call: Option<Recipient>,
}

type Answered = Result<Response<UpstreamBody>, EgressError>;

impl Aside<'_> {
    /// Sends a request, which goes on if this is dropped after its first byte was written.
    pub(super) async fn send(
        &self,
        pool: &Pool,
        request: Request,
        timeout: Duration,
        home: Option<IpAddr>,
    ) -> Answered {
        let (mut done, answer) = oneshot::channel();
        let (pool, sent, call) = (pool.clone(), self.sent.clone(), self.call.clone());
        let (cookies, begun) = (self.late.clone(), Arc::clone(&self.begun));
        let request = match self.channels.map(Arc::clone) {
            Some(ours) => {
                let (is_replaced, routing) =
                    (Arc::clone(self.is_replaced), Arc::clone(self.routing));
                request.only_if(Box::new(move || {
                    ours.owners.is_certain()
                        && !is_replaced.load(Ordering::Acquire)
                        && routing.ended().is_none()
                }))
            }
            None => request,
        };
        let sending = async move {
            let mut writing = Box::pin(pool.send_home(&request, timeout, home));
            let mut sending = poll_fn(|cx| {
                let polled = writing.as_mut().poll(cx);
                if sent.get() {
                    begun.notify_one();
                }
                polled
            });
            let answered = tokio::select! {
                biased;
                answered = &mut sending => answered,
                () = done.closed() => match sent.get() {
                    true => sending.await,
                    false => return,
                },
            };
            if let Err(late) = done.send(answered) {
                if let Ok(answer) = &late {
                    cookies.keep(answer.headers());
                }
                settle(late, call).await;
            }
        };
        let closing = self.closing.clone();
        self.tasks
            .spawn(async move { closing.run_until_cancelled(sending).await });
        let lost = |_| match self.sent.get() {
            true => EgressError::Broken(WireError::Closed),
            false => EgressError::NotSent(WireError::Closed),
        };
        answer.await.map_err(lost)?
    }
}

/// An answer that nobody waits for any more.
async fn settle(answered: Answered, call: Option<Recipient>) {
    let why = match answered {
        Ok(answer) if answer.status().is_success() => {
            // Read, so that the connection can be reused.
            drop(read_limited(answer.into_body(), MAX_READ_OUT).await);
            return;
        }
        Ok(answer) => format!("it answered {}", answer.status()),
        Err(error) => error.to_string(),
    };
    if let Some(call) = call {
        call.not_taken(&why);
    }
}
