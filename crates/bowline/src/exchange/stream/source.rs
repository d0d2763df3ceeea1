//! Where a stream's pieces come from: an upstream's answer, one that is being opened, or Bowline itself.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_egress::Sent;
use bowline_wire::message::RawId;
use bowline_wire::sse::Event;

use crate::exchange::stream::Halt;
use crate::exchange::stream::relay::{EventRelay, FrameRelay, Piece, Relay};
use crate::fault::Fault;
use crate::upstream::{StreamError, UpstreamError};

/// Where a stream's pieces come from.
pub(crate) enum Source {
    /// The upstream has not answered yet. If a request continues after the client's disconnect, `Sent` says
    /// whether it was sent.
    Opening(Opening, Option<Sent>),
    /// An upstream's events.
    Events(Box<EventRelay>),
    /// An upstream's large response, in parts.
    Frames(Box<FrameRelay>),
    /// None: the stream is open only for Bowline's own events.
    Silent,
    /// Events that are here, and then the rest.
    Saying(VecDeque<Event>, Box<Self>),
    /// The session has another generation, on which the reader opens it.
    Restart,
    /// The reader knows that it broke, and looks for another source.
    Halted,
    /// Ended between events.
    Ended,
    /// Ended with an error that a later attempt may not meet.
    EndedForNow,
    /// Ended in the middle of a body: the client must not take it for complete.
    Cut,
    /// Taken out by the reader, while it is polled. Whether ending it cuts a body.
    Out { is_cut: bool },
}

pub(super) type Next = Poll<Option<Result<Piece, Halt>>>;

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

    /// The same, without the event after which it was resumed.
    pub(crate) fn without_repeat(self) -> Self {
        self.with_events(EventRelay::skip_repeat)
    }

    /// The same for events, changed like this.
    pub(crate) fn with_events(mut self, change: impl FnOnce(&mut EventRelay)) -> Self {
        if let Self::Events(events) = &mut self {
            change(events);
        }
        self
    }

    /// Whether nothing of it is still to come from a server.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Ended | Self::EndedForNow | Self::Cut => true,
            Self::Saying(_, rest) => rest.is_over(),
            Self::Opening(..)
            | Self::Events(_)
            | Self::Frames(_)
            | Self::Silent
            | Self::Restart
            | Self::Halted
            | Self::Out { .. } => false,
        }
    }

    /// Whether its pieces are events.
    pub(super) fn is_events(&self) -> bool {
        !matches!(self.end(), Self::Cut)
    }

    /// For the reader, which puts it back.
    pub(super) fn take_out(&mut self) -> Self {
        let is_cut = !self.is_events();
        std::mem::replace(self, Self::Out { is_cut })
    }

    /// Ready when the upstream has answered.
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
                        let cut = Halt::Cut(StreamError::NotOpened);
                        return Poll::Ready(Some(Err(cut)));
                    }
                }
                Self::Events(events) => {
                    return Poll::Ready(match ready!(events.poll_next(cx)) {
                        Some(Ok(event)) => Some(Ok(Piece::Event(event))),
                        // What follows the answer is not worth another attempt.
                        Some(Err(_)) if events.has_answered() => None,
                        Some(Err(error)) => Some(Err(events.halted(error))),
                        None => None,
                    });
                }
                Self::Frames(frames) => {
                    let next = frames.poll_next(cx);
                    return next
                        .map(|next| next.map(|part| part.map(Piece::Part).map_err(Halt::Cut)));
                }
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
                Self::Restart => return Poll::Ready(Some(Err(Halt::Restart))),
                Self::Halted | Self::Ended | Self::EndedForNow | Self::Out { .. } => {
                    return Poll::Ready(None);
                }
                Self::Cut => return Poll::Ready(Some(Err(Halt::Cut(StreamError::Cut)))),
            }
        }
    }

    /// Whether dropping this would lose the response of a running request: the upstream gave no event id to resume
    /// from.
    pub(super) fn must_be_read_out(&self) -> bool {
        match self {
            Self::Events(events) => events.must_be_read_out(),
            Self::Frames(_) => true,
            Self::Saying(_, rest) => rest.must_be_read_out(),
            Self::Opening(_, sent) => sent.as_ref().is_some_and(Sent::get),
            Self::Silent
            | Self::Restart
            | Self::Halted
            | Self::Ended
            | Self::EndedForNow
            | Self::Cut
            | Self::Out { .. } => false,
        }
    }

    /// What replaces this source when the stream is ended from outside: an event stream ends between events,
    /// any other body is cut.
    pub(super) fn end(&self) -> Self {
        match self {
            Self::Frames(_) | Self::Cut | Self::Out { is_cut: true } => Self::Cut,
            Self::Saying(_, rest) => rest.end(),
            Self::Opening(..)
            | Self::Events(_)
            | Self::Silent
            | Self::Restart
            | Self::Halted
            | Self::Ended
            | Self::EndedForNow
            | Self::Out { is_cut: false } => Self::Ended,
        }
    }
}

impl From<Relay> for Source {
    fn from(relay: Relay) -> Self {
        match relay {
            Relay::Events(events) => Self::Events(events),
            Relay::Frames(frames) => Self::Frames(frames),
        }
    }
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Opening(..) => "Opening",
            Self::Events(_) => "Events",
            Self::Frames(_) => "Frames",
            Self::Silent => "Silent",
            Self::Saying(..) => "Saying",
            Self::Restart => "Restart",
            Self::Halted => "Halted",
            Self::Ended => "Ended",
            Self::EndedForNow => "EndedForNow",
            Self::Cut => "Cut",
            Self::Out { .. } => "Out",
        })
    }
}
