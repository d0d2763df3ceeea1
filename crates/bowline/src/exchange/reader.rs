//! What reads a live stream for its client, and goes on where its server's side breaks.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bowline_wire::sse::Event;

use crate::exchange::rescue::Rescue;
use crate::exchange::stream::relay::Piece;
use crate::exchange::stream::{Halt, LiveStream, NotOpen, Source, StreamError};
use crate::session::InUse;
use crate::session::streams::ClientStream as _;
use crate::share::Permit;
use crate::upstream::UpstreamError;

/// The reader of a live stream. Dropping it ends the stream.
#[derive(Debug)]
pub(crate) struct Reader {
    stream: Arc<LiveStream>,
    in_use: InUse,
    /// The stream's permit.
    place: Option<Permit>,
    /// How to go on after a break, if that is possible.
    rescue: Option<Box<Rescue>>,
    /// Bowline's own events that come next.
    news: VecDeque<Event>,
}

// === impl Reader ===

impl Reader {
    pub(crate) fn new(
        stream: Arc<LiveStream>,
        in_use: InUse,
        place: Option<Permit>,
        rescue: Option<Box<Rescue>>,
    ) -> Self {
        Self {
            stream,
            in_use,
            place,
            rescue,
            news: VecDeque::new(),
        }
    }

    /// Whether it has ended with an error that a later attempt may not meet.
    pub(crate) fn has_ended_for_now(&self) -> bool {
        self.stream.has_ended_for_now()
    }

    /// Waits until the upstream has answered, with success or an error.
    pub(crate) async fn opened(&mut self) -> Result<(), UpstreamError> {
        poll_fn(|cx| {
            loop {
                match ready!(self.stream.poll_open(cx)) {
                    Ok(()) => return Poll::Ready(Ok(())),
                    Err(NotOpen::Failed(error)) => return Poll::Ready(Err(error)),
                    Err(NotOpen::Restart) => self.restart(),
                }
            }
        })
        .await
    }

    /// The next piece.
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, StreamError>>> {
        loop {
            if let Some(own) = self.next_own() {
                return Poll::Ready(Some(Ok(Piece::Event(own))));
            }
            let halt = match ready!(self.stream.poll_next(cx)) {
                Some(Ok(piece)) => return Poll::Ready(Some(Ok(piece))),
                Some(Err(halt)) => halt,
                None => return Poll::Ready(None),
            };
            match (halt, &mut self.rescue) {
                (Halt::Cut(error), _) => return Poll::Ready(Some(Err(error))),
                (Halt::Broke(broken), Some(rescue)) => {
                    let source = rescue.go_on(*broken);
                    self.stream.resume(source);
                }
                (Halt::Broke(broken), None) => {
                    self.stream.resume(Source::Ended);
                    return Poll::Ready(Some(Err(broken.error)));
                }
                (Halt::Restart, _) => self.restart(),
            }
        }
    }

    /// The next event of Bowline's own on the stream of a GET.
    fn next_own(&mut self) -> Option<Event> {
        let rescue = self.rescue.as_ref()?;
        if !rescue.is_standalone() {
            return None;
        }
        if let Some(said) = self.stream.take_said() {
            return Some(said);
        }
        if self.news.is_empty() {
            self.news = rescue.news().into();
        }
        self.news.pop_front()
    }

    fn restart(&mut self) {
        let rescue = self.rescue.as_mut();
        self.stream
            .resume(rescue.map_or(Source::Ended, |rescue| rescue.restart()));
    }

    /// The client has left: nothing is sent or repaired any more. `None`: nothing is lost if it is not read. Otherwise it
    /// belongs to a running request, and cannot be resumed.
    pub(crate) fn into_unheard(mut self) -> Option<Self> {
        self.rescue = None;
        self.stream.leave();
        self.stream.must_be_read_out().then_some(self)
    }

    /// Reads to the end, for nobody.
    pub(crate) async fn read_out(mut self) {
        while let Some(Ok(_)) = poll_fn(|cx| self.poll_next(cx)).await {}
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.end();
        self.in_use.session().detach(&self.stream);
        drop(self.place.take());
    }
}
