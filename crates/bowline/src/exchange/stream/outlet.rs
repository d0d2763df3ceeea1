//! A stream as its client reads it: one live stream, or the events of several that are joined elsewhere. Dropping
//! it is the client's disconnect. If a live stream belongs to a running request and cannot be resumed, it is still
//! read to its end.

use std::sync::Arc;
use std::task::{Context, Poll};

use bowline_wire::sse::Event;
use tokio::sync::{OwnedMutexGuard, mpsc};
use tokio_util::sync::DropGuard;

use crate::exchange::detach::Abandoned;
use crate::exchange::stream::relay::Piece;
use crate::exchange::stream::{LiveStream, StreamError};
use crate::session::InUse;
use crate::session::streams::ClientStream as _;
use crate::share::Permit;
use crate::upstream::SentAs;

/// A client's end of a stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    from: Origin,
    pub(crate) sent_as: SentAs,
    /// Whether its pieces are whole events; otherwise they are parts of one body.
    pub(crate) is_events: bool,
    /// A turn that lasts as long as the stream.
    turn: Option<OwnedMutexGuard<()>>,
}

#[derive(Debug)]
enum Origin {
    Live(Box<LiveOutlet>),
    /// Events that somebody else joins, for as long as the guard is held.
    Joined(
        mpsc::Receiver<Event>,
        #[expect(dead_code, reason = "ends the joining when dropped")] DropGuard,
    ),
}

/// A client's end of a live stream.
#[derive(Debug)]
struct LiveOutlet {
    stream: Arc<LiveStream>,
    in_use: InUse,
    abandoned: Abandoned,
    /// The stream's permit, held also while the stream is read out.
    place: Option<Permit>,
}

/// A stream whose client left. It is read until it ends or its time is over; then it is detached.
struct ReadOut {
    stream: Arc<LiveStream>,
    in_use: InUse,
    _place: Option<Permit>,
}

// === impl Outlet ===

impl Outlet {
    /// The client's end of a stream of events.
    pub(crate) fn events(
        stream: Arc<LiveStream>,
        in_use: InUse,
        abandoned: Abandoned,
        place: Option<Permit>,
    ) -> Self {
        let live = LiveOutlet {
            stream,
            in_use,
            abandoned,
            place,
        };
        Self {
            from: Origin::Live(Box::new(live)),
            sent_as: SentAs::events(),
            is_events: true,
            turn: None,
        }
    }

    /// The client's end of events that are joined elsewhere until the guard is dropped.
    pub(crate) fn joined(events: mpsc::Receiver<Event>, joining: DropGuard) -> Self {
        Self {
            from: Origin::Joined(events, joining),
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

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        match &self.from {
            Origin::Live(live) => live.stream.has_ended_for_now(),
            Origin::Joined(..) => false,
        }
    }

    /// The next piece.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, StreamError>>> {
        match &mut self.from {
            Origin::Live(live) => live.stream.poll_next(cx),
            Origin::Joined(events, _) => {
                let event = events.poll_recv(cx);
                event.map(|event| event.map(|event| Ok(Piece::Event(event))))
            }
        }
    }
}

impl Drop for LiveOutlet {
    fn drop(&mut self) {
        let session = Arc::clone(self.in_use.session());
        let stream = Arc::clone(&self.stream);
        stream.leave();
        if stream.must_be_read_out() {
            let reading = ReadOut {
                stream,
                in_use: session.begin_use(),
                _place: self.place.take(),
            };
            self.abandoned.see_out(reading.finish());
        } else {
            stream.end();
            session.detach(&stream);
        }
    }
}

// === impl ReadOut ===

impl ReadOut {
    async fn finish(self) {
        let next = || std::future::poll_fn(|cx| self.stream.poll_next(cx));
        while let Some(Ok(_)) = next().await {}
    }
}

impl Drop for ReadOut {
    fn drop(&mut self) {
        self.stream.end();
        self.in_use.session().detach(&self.stream);
    }
}
