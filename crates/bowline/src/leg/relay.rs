//! An upstream's answer on its way to the client, read only as fast as the client reads.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bowline_wire::batch::BadBatch;
use bowline_wire::message::{Kind, Message};
use bowline_wire::sse::{Decoder, EventTooLarge};
use bytes::{Bytes, BytesMut};
use http_body::Body as _;
use thiserror::Error;

use super::rewrite::{Content, Rewrite};
use crate::egress::UpstreamBody;
use crate::session::Born;

/// The largest event that is passed on. An event is held whole, for the rewrite.
pub(crate) const MAX_EVENT: usize = 16 * 1024 * 1024;

/// A body that is passed on while it arrives.
#[derive(Debug)]
pub(crate) enum Relay {
    /// Events, rewritten one by one.
    Events(EventRelay),
    /// Anything else, frame by frame as it came.
    Frames {
        /// What was read already, to see what it is.
        first: Option<Bytes>,
        body: UpstreamBody,
    },
}

/// A stream of events.
#[derive(Debug)]
pub(crate) struct EventRelay {
    body: UpstreamBody,
    decoder: Decoder,
    rewrite: Rewrite,
    /// Events that were read while waiting for one of them.
    ready: VecDeque<Bytes>,
    saw_event_id: bool,
}

/// An event as the client sees it, and what is in it as it came.
type Shown = (Bytes, Content);

/// Why a stream broke off.
#[derive(Debug, Error)]
pub(crate) enum StreamError {
    #[error("the server's connection broke: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the server's stream ended within an event")]
    Cut,
    #[error(transparent)]
    EventTooLarge(#[from] EventTooLarge),
    #[error("the server sent {0}")]
    Batch(#[from] BadBatch),
    #[error("an id could not be sealed")]
    Seal,
    #[error("the server's stream ended without the answer")]
    NoAnswer,
}

// === impl Relay ===

impl Relay {
    pub(crate) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        match self {
            Self::Events(events) => events.poll_next(cx),
            Self::Frames { first, body } => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(first))),
                None => poll_data(body, cx).map(|data| data.map(|data| Ok(data?))),
            },
        }
    }

    /// Everything that is left, as far as it comes and within [`MAX_EVENT`] bytes.
    pub(crate) async fn read_out(mut self) -> Bytes {
        let mut whole = BytesMut::new();
        while let Some(Ok(part)) = poll_fn(|cx| self.poll_next(cx)).await {
            if whole.len() + part.len() > MAX_EVENT {
                break;
            }
            whole.extend_from_slice(&part);
        }
        whole.freeze()
    }

    /// Whether leaving this unread would lose what a running request has to say: it belongs to a
    /// request, and the upstream gave no event id to resume from.
    pub(crate) fn must_be_read_out(&self) -> bool {
        match self {
            Self::Events(events) => {
                matches!(events.rewrite.born(), Born::Request(_)) && !events.saw_event_id
            }
            Self::Frames { .. } => true,
        }
    }
}

// === impl EventRelay ===

impl EventRelay {
    pub(crate) fn new(body: UpstreamBody, rewrite: Rewrite) -> Self {
        Self {
            body,
            decoder: Decoder::new(MAX_EVENT),
            rewrite,
            ready: VecDeque::new(),
            saw_event_id: false,
        }
    }

    /// Reads up to the answer to the request with this id; everything read is still passed on.
    pub(crate) async fn until_answer(&mut self, id: &str) -> Result<Message, StreamError> {
        loop {
            let (shown, content) = poll_fn(|cx| self.poll_event(cx))
                .await
                .ok_or(StreamError::NoAnswer)??;
            self.ready.push_back(shown);
            let answers =
                |message: &Message| message.kind() == Kind::Response && message.id() == Some(id);
            if let Some(answer) = content.find(answers) {
                return Ok(answer);
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        if let Some(shown) = self.ready.pop_front() {
            return Poll::Ready(Some(Ok(shown)));
        }
        let next = ready!(self.poll_event(cx));
        Poll::Ready(next.map(|event| event.map(|(shown, _)| shown)))
    }

    /// The next event as the client sees it, and what is in it.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Shown, StreamError>>> {
        loop {
            if let Some(event) = self.decoder.next_event()? {
                self.saw_event_id |= event.id().is_some_and(|id| !id.is_empty());
                let data = event.data().filter(|data| !data.is_empty());
                let content = match data {
                    // A slice of the event's own bytes unless the data spans lines.
                    Some(Cow::Borrowed(part)) => Content::of(event.raw().slice_ref(part))?,
                    Some(Cow::Owned(joined)) => Content::of(joined.into())?,
                    None => Content::Other,
                };
                let shown = self.rewrite.event(&event, &content);
                let shown = shown.ok_or(StreamError::Seal)?;
                return Poll::Ready(Some(Ok((shown, content))));
            }
            match ready!(poll_data(&mut self.body, cx)) {
                Some(data) => self.decoder.push(data?),
                None if self.decoder.is_between_events() => return Poll::Ready(None),
                None => return Poll::Ready(Some(Err(StreamError::Cut))),
            }
        }
    }
}

/// The next bytes of a body; trailers mean nothing here.
pub(super) fn poll_data(
    body: &mut UpstreamBody,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Bytes, hyper::Error>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
        }
    }
}
