//! Where a stream's bytes come from: an upstream's answer, one that is being opened, or Bowline itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_egress::Sent;
use bowline_wire::message::RawId;
use bowline_wire::sse::Event;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::stream::relay::{EventRelay, Piece, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::fault::Fault;
use crate::upstream::{StreamError, UpstreamError};

/// Where a stream's bytes come from.
pub(crate) enum Source {
    /// The upstream has not answered yet. If a request continues after the client's disconnect, `Sent` says
    /// whether it was sent.
    Opening(Opening, Option<Sent>),
    /// An upstream's response.
    Relay(Relay),
    /// The same, and how to resume it if it breaks.
    Rescuable(Relay, Box<Rescue>),
    /// None: the stream is open only for Bowline's own events.
    Silent,
    /// Events that are here, and then the rest.
    Saying(VecDeque<Event>, Box<Self>),
    /// Ended between events.
    Ended,
    /// Ended with an error that a later attempt may not meet.
    EndedForNow,
    /// Ended in the middle of a body: the client must not take it for complete.
    Cut,
    /// Taken out by the reader, while it is polled. Whether ending it cuts a body.
    Out { is_cut: bool },
}

pub(super) type Next = Poll<Option<Result<Piece, StreamError>>>;

/// The upstream's side of a stream that is being opened.
type Opening = Pin<Box<dyn Future<Output = Result<Source, UpstreamError>> + Send>>;

// === impl Source ===

impl Source {
    /// The upstream's side of a stream that is being opened.
    pub(crate) fn opening(
        opening: impl Future<Output = Result<Self, UpstreamError>> + Send + 'static,
    ) -> Self {
        Self::Opening(Box::pin(opening), None)
    }

    /// The same with a request that continues after the client's disconnect.
    pub(crate) fn sending(
        opening: impl Future<Output = Result<Self, UpstreamError>> + Send + 'static,
        sent: Sent,
    ) -> Self {
        Self::Opening(Box::pin(opening), Some(sent))
    }

    /// Ends with this fault, as the answer to the request with this id.
    pub(crate) fn fault(fault: &Fault, id: Option<RawId<'_>>) -> Self {
        let end = match fault.row().retry.seconds() {
            Some(_) => Self::EndedForNow,
            None => Self::Ended,
        };
        end.preceded_by(Event::of_message(fault.body(id)))
    }

    /// Ends after this event.
    pub(crate) fn last(event: Event) -> Self {
        Self::Ended.preceded_by(event)
    }

    /// Ends after these events.
    pub(crate) fn events(events: Vec<Event>) -> Self {
        Self::Saying(events.into(), Box::new(Self::Ended))
    }

    /// The same after an event from Bowline itself.
    pub(crate) fn preceded_by(self, event: Event) -> Self {
        Self::Saying(VecDeque::from([event]), Box::new(self))
    }

    /// Whether nothing of it is still to come from a server.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Ended | Self::EndedForNow | Self::Cut => true,
            Self::Saying(_, rest) => rest.is_over(),
            Self::Opening(..)
            | Self::Relay(_)
            | Self::Rescuable(..)
            | Self::Silent
            | Self::Out { .. } => false,
        }
    }

    /// For the reader, which puts it back.
    pub(super) fn take_out(&mut self) -> Self {
        let is_cut = matches!(self.end(), Self::Cut);
        std::mem::replace(self, Self::Out { is_cut })
    }

    /// The same, without the event after which it was resumed.
    pub(crate) fn without_repeat(self) -> Self {
        self.with_events(EventRelay::without_repeat)
    }

    /// The same, without progress that the client has already seen.
    pub(crate) fn beyond(self, progress: Option<f64>) -> Self {
        self.with_events(|events| events.beyond(progress))
    }

    /// The same with its call's timeout.
    pub(crate) fn with_timeout(self, timeout: Option<CallTimeout>) -> Self {
        self.with_events(|events| events.with_timeout(timeout))
    }

    fn with_events(self, change: impl FnOnce(EventRelay) -> EventRelay) -> Self {
        match self {
            Self::Relay(Relay::Events(events)) => {
                Self::Relay(Relay::Events(Box::new(change(*events))))
            }
            other => other,
        }
    }

    /// Waits until the upstream has answered.
    pub(super) fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), UpstreamError>> {
        if let Self::Opening(opening, _) = self {
            *self = ready!(opening.as_mut().poll(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Next {
        loop {
            match self {
                Self::Opening(..) => {
                    if ready!(self.poll_open(cx)).is_err() {
                        return Poll::Ready(Some(Err(StreamError::NotOpened)));
                    }
                }
                Self::Relay(relay) | Self::Rescuable(relay, _) => return relay.poll_next(cx),
                Self::Silent => return Poll::Pending,
                Self::Saying(events, rest) => {
                    let event = events.pop_front();
                    if events.is_empty() {
                        *self = std::mem::replace(rest, Self::Ended);
                    }
                    if let Some(event) = event {
                        return Poll::Ready(Some(Ok(Piece::Event(event))));
                    }
                }
                Self::Ended | Self::EndedForNow | Self::Out { .. } => return Poll::Ready(None),
                Self::Cut => return Poll::Ready(Some(Err(StreamError::Cut))),
            }
        }
    }

    pub(super) fn must_be_read_out(&self) -> bool {
        match self {
            Self::Relay(relay) | Self::Rescuable(relay, _) => relay.must_be_read_out(),
            Self::Saying(_, rest) => rest.must_be_read_out(),
            Self::Opening(_, sent) => sent.as_ref().is_some_and(Sent::get),
            Self::Silent | Self::Ended | Self::EndedForNow | Self::Cut | Self::Out { .. } => false,
        }
    }

    /// What replaces this source when the stream is ended from outside: an event stream ends between events,
    /// any other body is cut.
    pub(super) fn end(&self) -> Self {
        match self {
            Self::Relay(Relay::Frames(_))
            | Self::Rescuable(Relay::Frames(_), _)
            | Self::Cut
            | Self::Out { is_cut: true } => Self::Cut,
            Self::Saying(_, rest) => rest.end(),
            Self::Relay(_)
            | Self::Rescuable(..)
            | Self::Opening(..)
            | Self::Silent
            | Self::Ended
            | Self::EndedForNow
            | Self::Out { is_cut: false } => Self::Ended,
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opening(..) => "Opening",
            Self::Relay(_) => "Relay",
            Self::Rescuable(..) => "Rescuable",
            Self::Silent => "Silent",
            Self::Saying(..) => "Saying",
            Self::Ended => "Ended",
            Self::EndedForNow => "EndedForNow",
            Self::Cut => "Cut",
            Self::Out { .. } => "Out",
        })
    }
}
