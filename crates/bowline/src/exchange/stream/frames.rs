//! A large JSON answer on its way to the client, frame by frame as it comes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bowline_egress::UpstreamBody;
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
use crate::fault::Fault;
use crate::leg::Leg;
use crate::telemetry::SessionHash;
use crate::upstream::{Frames, Passing, StreamError, UpstreamError, poll_data};

/// A body that is not events.
#[derive(Debug)]
pub(crate) struct FrameRelay {
    /// What was read already, and what is looked for in the rest.
    passing: Passing,
    body: UpstreamBody,
    timeout: Option<CallTimeout>,
    session: SessionHash,
    /// Held while its exchange is under way.
    leg: Arc<Leg>,
}

// === impl FrameRelay ===

impl FrameRelay {
    pub(crate) fn new(frames: Frames, session: SessionHash, leg: &Arc<Leg>) -> Self {
        Self {
            passing: frames.passing,
            body: frames.body,
            timeout: None,
            session,
            leg: Arc::clone(leg),
        }
    }

    /// Cuts the answer off if it does not go on for too long.
    pub(crate) fn with_timeout(mut self, timeout: Option<CallTimeout>) -> Self {
        self.timeout = timeout;
        self
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            if let Some(part) = self.passing.pop() {
                return Poll::Ready(Some(Ok(part)));
            }
            let passed = match (poll_data(&mut self.body, cx), &mut self.timeout) {
                (Poll::Ready(Some(Ok(data))), timeout) => {
                    timeout.iter_mut().for_each(CallTimeout::put_off);
                    self.passing.push(data)
                }
                (Poll::Ready(Some(Err(error))), _) => Err(error.into()),
                (Poll::Ready(None), _) => match self.passing.end() {
                    Ok(()) => return Poll::Ready(None),
                    Err(error) => Err(error),
                },
                (Poll::Pending, Some(timeout)) => {
                    return timeout
                        .poll_begun(cx)
                        .map(|_| Some(Err(StreamError::CallTimeout)));
                }
                (Poll::Pending, None) => return Poll::Pending,
            };
            if let Err(error) = passed {
                self.tell_cut(&error);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// The client sees a cut, and no status or error tells why: it is counted and logged here.
    fn tell_cut(&self, error: &StreamError) {
        let server = &self.leg.upstream;
        let (session, name) = (self.session, &server.name);
        let unknown = UpstreamError::OutcomeUnknown(error.to_string().into());
        let fault = Fault::on(&self.leg, unknown);
        let reason = fault.row().name;
        server.metrics.refused(reason);
        match error {
            StreamError::AnotherId => {
                tracing::warn!(reason, %session, server = %name, "answer under another id, cut off");
            }
            error => {
                tracing::warn!(reason, %session, server = %name, %error, "an answer was cut off")
            }
        }
    }
}
