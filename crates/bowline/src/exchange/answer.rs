//! A reply, read to its end message by message, as a client would read it: for the members of a batch, and
//! for fronts without event streams.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use bowline_egress::ReadError;
use bowline_wire::batch;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bowline_wire::skip::MAX_MESSAGE;
use bowline_wire::sse::Event;
use bytes::{Bytes, BytesMut};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::exchange::Reply;
use crate::exchange::outlet::Outlet;
use crate::upstream::{StreamError, UpstreamError};

/// The messages that answer one request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The request's id.
    id: RawIdBuf,
    messages: Messages,
    is_answered: bool,
    /// Why there may be no answer: the server replied with an error status.
    not_mcp: Option<UpstreamError>,
}

/// The messages of a stream or of a complete reply.
#[derive(Debug)]
pub(crate) struct Messages {
    /// Read, and not returned yet.
    ready: VecDeque<Bytes>,
    rest: Rest,
    large: LargeAnswers,
    /// Held while a large answer is in memory.
    reading: Option<OwnedMutexGuard<()>>,
    position: Position,
}

/// What is not read yet.
#[derive(Debug)]
enum Rest {
    Nothing,
    /// Events that have arrived.
    Read(vec::IntoIter<Event>),
    Events(Outlet),
    /// One JSON body.
    Body(Outlet),
}

/// Where a stream of events can be resumed, and when.
#[derive(Debug, Clone, Default)]
pub(crate) struct Position {
    pub(crate) last_event_id: Option<Bytes>,
    /// The delay that the server asked for.
    pub(crate) retry: Option<Duration>,
}

/// How answers that arrive in parts are held in memory: one at a time, and up to a limit.
#[derive(Debug, Clone)]
pub(crate) struct LargeAnswers {
    turn: Arc<Mutex<()>>,
    limit: usize,
}

// === impl LargeAnswers ===

impl LargeAnswers {
    pub(crate) fn up_to(limit: usize) -> Self {
        Self {
            turn: Arc::default(),
            limit,
        }
    }
}

// === impl Answer ===

impl Answer {
    /// The reply to the request with this id.
    pub(crate) fn of(id: RawId<'_>, reply: Reply, large: &LargeAnswers) -> Self {
        let not_mcp = match &reply {
            Reply::Message { sent_as, .. } if !sent_as.is_good() => Some(sent_as.not_mcp()),
            _ => None,
        };
        Self {
            id: id.to_buf(),
            messages: Messages::of(reply, large),
            is_answered: false,
            not_mcp,
        }
    }

    /// Whether messages may still arrive after the first.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self.messages.rest, Rest::Events(_) | Rest::Read(_))
    }

    /// Whether one of the messages answered the request.
    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether the answer is an error of Bowline's own that a later attempt may not meet.
    pub(crate) fn is_for_now(&self) -> bool {
        let ended = |outlet: &Outlet| outlet.has_ended_for_now();
        self.is_answered && matches!(&self.messages.rest, Rest::Events(outlet) if ended(outlet))
    }

    /// The next message; `None` after the last. It is an error if none of them answers the request.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, UpstreamError> {
        if let Some(message) = self.messages.next().await? {
            self.is_answered |= message.answers(self.id.as_id());
            return Ok(Some(message));
        }
        match self.not_mcp.take() {
            _ if self.is_answered => Ok(None),
            Some(error) => Err(error),
            None => Err(StreamError::NoAnswer.into()),
        }
    }

    /// Where the answer can be resumed, if the server ended its stream before it.
    pub(crate) fn resumable(&self) -> Option<&Position> {
        let position = &self.messages.position;
        (!self.is_answered && position.last_event_id.is_some()).then_some(position)
    }

    /// Continues with the rest of a stream that was resumed.
    pub(crate) fn resume(&mut self, outlet: Outlet) {
        self.messages.rest = Rest::Events(outlet);
    }
}

// === impl Messages ===

impl Messages {
    /// The messages of a reply.
    pub(crate) fn of(reply: Reply, large: &LargeAnswers) -> Self {
        let mut messages = Self::new(Rest::Nothing, large);
        match reply {
            Reply::Accepted => {}
            Reply::Message { body, .. } => messages.add(body),
            Reply::Events(events) => messages.rest = Rest::Read(events.into_iter()),
            Reply::Stream(outlet) if outlet.is_events => messages.rest = Rest::Events(outlet),
            Reply::Stream(outlet) => messages.rest = Rest::Body(outlet),
        }
        messages
    }

    /// The messages of a stream of events.
    pub(crate) fn of_stream(outlet: Outlet) -> Self {
        Self::new(Rest::Events(outlet), &LargeAnswers::up_to(MAX_MESSAGE))
    }

    fn new(rest: Rest, large: &LargeAnswers) -> Self {
        Self {
            ready: VecDeque::new(),
            rest,
            large: large.clone(),
            reading: None,
            position: Position::default(),
        }
    }

    /// Where the stream can be resumed.
    pub(crate) fn position(&self) -> &Position {
        &self.position
    }

    /// The next message; `None` after the last. What is not a message is left out.
    pub(crate) async fn next(&mut self) -> Result<Option<Message>, UpstreamError> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                match Message::from_server(ready) {
                    Ok(message) => return Ok(Some(message)),
                    Err(_) => continue,
                }
            }
            self.reading = None;
            match &mut self.rest {
                Rest::Nothing => return Ok(None),
                Rest::Read(events) => match events.next() {
                    Some(event) => self.take(&event),
                    None => self.rest = Rest::Nothing,
                },
                Rest::Events(outlet) => match poll_fn(|cx| outlet.poll_next(cx)).await {
                    Some(piece) => {
                        let event = piece?.into_event();
                        event.iter().for_each(|event| self.take(event));
                    }
                    None => self.rest = Rest::Nothing,
                },
                Rest::Body(outlet) => {
                    // Held until the answer is passed on. Otherwise every request could have one in memory.
                    self.reading = Some(Arc::clone(&self.large.turn).lock_owned().await);
                    let body = whole(outlet, self.large.limit).await?;
                    self.rest = Rest::Nothing;
                    self.add(body);
                }
            }
        }
    }

    /// Takes the next event.
    fn take(&mut self, event: &Event) {
        if let Some(id) = event.id() {
            let id = Some(id).filter(|id| !id.is_empty());
            self.position.last_event_id = id.map(Bytes::copy_from_slice);
        }
        if let Some(retry) = event.retry() {
            self.position.retry = Some(retry);
        }
        let data = event.data().filter(|data| !data.is_empty());
        self.ready.extend(data);
    }

    /// Adds a complete answer, which may be an array.
    fn add(&mut self, body: Bytes) {
        match batch::is_batch(&body) {
            false => self.ready.push_back(body),
            true => {
                let members = batch::split(&body, usize::MAX).unwrap_or_default();
                self.ready.extend(members);
            }
        }
    }
}

/// Reads an answer that arrives in frames.
async fn whole(outlet: &mut Outlet, limit: usize) -> Result<Bytes, UpstreamError> {
    let mut body = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| outlet.poll_next(cx)).await {
        body.extend_from_slice(&frame?.into_bytes());
        if body.len() > limit {
            return Err(ReadError::TooLarge(limit).into());
        }
    }
    Ok(body.freeze())
}
