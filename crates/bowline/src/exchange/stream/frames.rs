//! A large JSON response, passed on to the client frame by frame.

use std::sync::Arc;
use std::task::{Context, Poll};

use bowline_egress::UpstreamBody;
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
use crate::fault::Fault;
use crate::leg::Leg;
use crate::telemetry::SessionHash;
use crate::upstream::reserved::KeyScan;
use crate::upstream::{Frames, Passing, SentAs, StreamError, UpstreamError, poll_data};

/// A body that is not an event stream.
#[derive(Debug)]
pub(crate) struct FrameRelay {
    /// The part that was read already, and the scanner for the rest.
    passing: Passing,
    body: UpstreamBody,
    timeout: Option<CallTimeout>,
    session: SessionHash,
    pub(crate) sent_as: SentAs,
    /// Watches that a member's answer has nothing that is cleared from what is held.
    keys: Option<KeyScan>,
    /// Held while the exchange is in progress.
    leg: Arc<Leg>,
}

// === impl FrameRelay ===

impl FrameRelay {
    pub(crate) fn new(frames: Frames, session: SessionHash, leg: &Arc<Leg>) -> Self {
        let is_of_member = leg.generation.is_of_member();
        Self {
            passing: frames.passing,
            body: frames.body,
            timeout: None,
            session,
            sent_as: frames.sent_as,
            keys: is_of_member.then(|| leg.upstream.reserved.scan()),
            leg: Arc::clone(leg),
        }
    }

    /// Cuts the response off if no data arrives before the timeout.
    pub(crate) fn set_timeout(&mut self, timeout: Option<CallTimeout>) {
        self.timeout = timeout;
    }

    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        loop {
            if let Some(part) = self.passing.pop() {
                if self.keys.as_mut().is_some_and(|keys| keys.finds(&part)) {
                    self.report_cut(&StreamError::Unreadable);
                    return Poll::Ready(Some(Err(StreamError::Unreadable)));
                }
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
                self.report_cut(&error);
                return Poll::Ready(Some(Err(error)));
            }
        }
    }

    /// The client sees only a cut, without a status or an error, so it is counted and logged here.
    fn report_cut(&self, error: &StreamError) {
        let server = &self.leg.upstream;
        let (session, name) = (self.session, &server.name);
        let unknown = UpstreamError::OutcomeUnknown(error.to_string().into());
        let fault = Fault::on(&self.leg, unknown);
        let reason = fault.row().name;
        server.metrics.refused(reason);
        match error {
            StreamError::AnotherId => {
                tracing::warn!(reason, %session, server = %name, "response with another id cut off");
            }
            error => {
                tracing::warn!(reason, %session, server = %name, %error, "response cut off")
            }
        }
    }
}
