//! A live stream as its client reads it. Dropping it is the client's disconnect. If the stream belongs to a
//! running request and cannot be resumed, it is still read to its end.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::exchange::detach::Abandoned;
use crate::exchange::stream::{LiveStream, StreamError};
use crate::session::InUse;
use crate::session::streams::ClientStream as _;
use crate::share::Permit;
use crate::upstream::SentAs;

/// A client's end of a stream.
#[derive(Debug)]
pub(crate) struct Outlet {
    stream: Arc<LiveStream>,
    in_use: InUse,
    abandoned: Abandoned,
    /// The stream's permit, held also while the stream is read out.
    place: Option<Permit>,
    pub(crate) sent_as: SentAs,
    /// Whether its pieces are whole events; otherwise they are parts of one body.
    pub(crate) is_events: bool,
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
        Self {
            stream,
            in_use,
            abandoned,
            place,
            sent_as: SentAs::events(),
            is_events: true,
        }
    }

    /// The client's end of a body that is not events.
    pub(crate) fn frames(mut self, sent_as: SentAs) -> Self {
        self.sent_as = sent_as;
        self.is_events = false;
        self
    }

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        self.stream.has_ended_for_now()
    }

    /// The next piece: one or more whole events, or a part of a body.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        self.stream.poll_next(cx)
    }
}

impl Drop for Outlet {
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
