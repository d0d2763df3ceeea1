//! Requests that are sent in a task of their own. Over HTTP+SSE the answer comes on the stream, possibly before that
//! of the POST; and a call that is given up must not cut its request in the middle.

use std::time::Duration;

use bowline_egress::{EgressError, Pool, Request, Sent, UpstreamBody, WireError, read_limited};
use http::Response;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::answer::MAX_READ_OUT;
use crate::upstream::live::Recipient;

/// Where a request is sent that has a task of its own.
#[derive(Debug, Clone)]
pub(in crate::upstream) struct Aside<'a> {
    pub(in crate::upstream) tasks: &'a TaskTracker,
    /// Ends the task.
    pub(in crate::upstream) closing: &'a CancellationToken,
    /// Whether any byte of the request was written.
    pub(in crate::upstream) sent: Sent,
    /// The call that the request makes. It learns of a failure that comes when it is waited for no longer.
    pub(in crate::upstream) call: Option<Recipient>,
}

type Answered = Result<Response<UpstreamBody>, EgressError>;

impl Aside<'_> {
    /// Sends a request, which goes on if this is dropped after its first byte was written.
    pub(super) async fn send(&self, pool: &Pool, request: Request, timeout: Duration) -> Answered {
        let (mut done, answer) = oneshot::channel();
        let (pool, sent, call) = (pool.clone(), self.sent.clone(), self.call.clone());
        let sending = async move {
            let mut sending = Box::pin(pool.send(&request, timeout));
            let answered = tokio::select! {
                biased;
                answered = &mut sending => answered,
                () = done.closed() => match sent.get() {
                    true => sending.await,
                    false => return,
                },
            };
            if let Err(late) = done.send(answered) {
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
