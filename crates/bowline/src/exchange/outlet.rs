//! A stream as its client reads it: one live stream, or the events of several that are joined elsewhere. Dropping
//! it is the client's disconnect. If a live stream belongs to a running request and cannot be resumed, it is still
//! read to its end.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use bowline_wire::sse::Event;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::DropGuard;

use crate::exchange::leaving::Departure;
use crate::exchange::reader::Reader;
use crate::exchange::stream::StreamError;
use crate::exchange::stream::relay::Piece;
use crate::upstream::{SentAs, UpstreamError};

/// A client's end of a stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    from: Origin,
    pub(crate) sent_as: SentAs,
    /// Whether its pieces are events; otherwise they are parts of one body.
    pub(crate) is_events: bool,
    /// A turn that lasts as long as the stream.
    turn: Option<OwnedMutexGuard<()>>,
}

#[derive(Debug)]
enum Origin {
    Live(Box<LiveOutlet>),
    Joint(Box<JointEvents>),
}

/// Events that somebody else joins.
#[derive(Debug)]
struct JointEvents {
    /// Those that came before there was a stream.
    held: VecDeque<Event>,
    events: mpsc::Receiver<Event>,
    /// Ends the joining when it is dropped. Without one, the end of `events` does.
    _joining: Option<DropGuard>,
}

/// A client's end of a live stream.
#[derive(Debug)]
struct LiveOutlet {
    /// Until the client leaves.
    reader: Option<Reader>,
    departure: Departure,
}

// === impl Outlet ===

impl Outlet {
    /// The client's end of a stream of events.
    pub(crate) fn events(reader: Reader, departure: Departure) -> Self {
        let live = LiveOutlet {
            reader: Some(reader),
            departure,
        };
        Self::of(Origin::Live(Box::new(live)))
    }

    /// The client's end of events that are joined elsewhere, until the guard is dropped. Some are here already.
    pub(crate) fn joined(
        held: Vec<Event>,
        events: mpsc::Receiver<Event>,
        joining: Option<DropGuard>,
    ) -> Self {
        Self::of(Origin::Joint(Box::new(JointEvents {
            held: held.into(),
            events,
            _joining: joining,
        })))
    }

    fn of(from: Origin) -> Self {
        Self {
            from,
            sent_as: SentAs::events(),
            is_events: true,
            turn: None,
        }
    }

    /// The same, with a turn that lasts as long as the stream.
    pub(crate) fn holding(mut self, turn: OwnedMutexGuard<()>) -> Self {
        self.turn = Some(turn);
        self
    }

    /// The client's end of a body that is not events.
    pub(crate) fn frames(mut self, sent_as: SentAs) -> Self {
        self.sent_as = sent_as;
        self.is_events = false;
        self
    }

    /// Waits until the upstream has answered, with success or an error.
    pub(crate) async fn opened(&mut self) -> Result<(), UpstreamError> {
        match self.reader_mut() {
            Some(reader) => reader.opened().await,
            None => Ok(()),
        }
    }

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        match &self.from {
            Origin::Live(live) => live.reader.as_ref().is_some_and(Reader::has_ended_for_now),
            Origin::Joint(_) => false,
        }
    }

    /// The next piece.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, StreamError>>> {
        match &mut self.from {
            Origin::Live(live) => match &mut live.reader {
                Some(reader) => reader.poll_next(cx),
                None => Poll::Ready(None),
            },
            Origin::Joint(joined) => {
                let event = match joined.held.pop_front() {
                    Some(held) => Poll::Ready(Some(held)),
                    None => joined.events.poll_recv(cx),
                };
                event.map(|event| event.map(|event| Ok(Piece::Event(event))))
            }
        }
    }

    fn reader_mut(&mut self) -> Option<&mut Reader> {
        match &mut self.from {
            Origin::Live(live) => live.reader.as_mut(),
            Origin::Joint(_) => None,
        }
    }
}

impl Drop for LiveOutlet {
    fn drop(&mut self) {
        if let Some(unheard) = self.reader.take().and_then(Reader::into_unheard) {
            self.departure.left(unheard.read_out());
        }
    }
}
