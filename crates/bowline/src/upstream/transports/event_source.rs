//! Where the events of a stream come from: the body of a response, the messages of a live channel, or
//! another gateway. Text is decoded here, and nowhere behind this.

use std::task::{Context, Poll, ready};

use bowline_egress::UpstreamBody;
use bowline_wire::skip::Skipped;
use bowline_wire::sse::{Decoder, Event, MAX_EVENT};
use bytes::Bytes;

use super::body::poll_data;
use super::error::StreamError;
use super::live::Incoming;
use super::peer_events::PeerEvents;

/// Where the events of a stream come from.
#[derive(Debug)]
pub(crate) enum EventSource {
    /// Text in SSE format.
    Text(Box<EventText>),
    /// Messages of a live channel.
    Live(Incoming),
}

/// Text in SSE format, while it arrives.
#[derive(Debug)]
pub(crate) struct EventText {
    from: TextSource,
    decoder: Decoder,
}

#[derive(Debug)]
enum TextSource {
    /// As a server wrote it.
    Http(UpstreamBody),
    /// Passed on by another gateway.
    Peer(PeerEvents),
}

/// Why there is no event.
#[derive(Debug)]
pub(crate) enum SourceError {
    /// One was too large and is skipped, and others follow.
    Skipped(Skipped),
    Broken(StreamError),
}

// === impl EventSource ===

impl EventSource {
    /// The events of a response.
    pub(crate) fn http(body: UpstreamBody) -> Self {
        Self::text(TextSource::Http(body))
    }

    /// Events that another gateway passes on.
    pub(super) fn peer(events: PeerEvents) -> Self {
        Self::text(TextSource::Peer(events))
    }

    fn text(from: TextSource) -> Self {
        Self::Text(Box::new(EventText {
            from,
            decoder: Decoder::new(MAX_EVENT),
        }))
    }

    /// The next event; `None` at an end between two events.
    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Event, SourceError>>> {
        match self {
            Self::Text(text) => text.poll_event(cx),
            Self::Live(incoming) => {
                let next = ready!(incoming.poll_next(cx));
                let message = next.map(|message| message.map(Event::of_message));
                Poll::Ready(message.map(|message| message.map_err(SourceError::Broken)))
            }
        }
    }
}

// === impl EventText ===

impl EventText {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Event, SourceError>>> {
        loop {
            match self.decoder.next_event() {
                Ok(Some(event)) => return Poll::Ready(Some(Ok(event))),
                Ok(None) => {}
                Err(too_large) => {
                    return Poll::Ready(Some(Err(SourceError::Skipped(too_large.what))));
                }
            }
            let Some(data) = ready!(self.from.poll_data(cx)) else {
                let is_cut = !self.decoder.is_between_events();
                let cut = is_cut.then_some(Err(SourceError::Broken(StreamError::Cut)));
                return Poll::Ready(cut);
            };
            self.decoder.push(data.map_err(SourceError::Broken)?);
        }
    }
}

// === impl TextSource ===

impl TextSource {
    /// The next bytes, wherever they cut an event.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamError>>> {
        match self {
            Self::Http(body) => poll_data(body, cx).map_err(Into::into),
            Self::Peer(events) => events.poll_data(cx),
        }
    }
}

// === impl SourceError ===

impl From<SourceError> for StreamError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Skipped(_) => Self::TooLarge,
            SourceError::Broken(error) => error,
        }
    }
}
