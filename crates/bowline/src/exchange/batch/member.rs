//! A request within a batch: its exchange, read to the end as a client would, message by message.

use std::future::poll_fn;
use std::sync::Arc;

use bowline_egress::ReadError;
use bowline_wire::batch;
use bowline_wire::message::Message;
use bowline_wire::sse::Decoder;
use bytes::{Bytes, BytesMut};

use crate::exchange::Exchange;
use crate::exchange::batch::{Part, Parts, Together};
use crate::exchange::reply::Reply;
use crate::exchange::stream::outlet::Outlet;
use crate::exchange::stream::relay::MAX_EVENT;
use crate::fault::Fault;
use crate::upstream::{MAX_HELD_ANSWER, StreamError, UpstreamError};

/// Why an answer was not handed on to its end.
enum Stopped {
    /// The client left.
    Left,
    Failed(UpstreamError),
}

/// A request of a batch that was sent.
struct Member {
    /// The request's id, as JSON text.
    id: Box<str>,
    parts: Parts,
    together: Together,
    answered: bool,
}

/// Asks a request and hands on what comes of it; when the client leaves, that is dropped, which is
/// what a client's leaving is for any exchange.
pub(crate) async fn ask(exchange: Exchange, request: Message, parts: Parts, together: Together) {
    let id: Box<str> = request.id().unwrap_or_default().into();
    let registry = Arc::clone(&exchange.registry);
    let session = Arc::clone(exchange.in_use.session());
    let mut member = Member {
        id: id.clone(),
        parts: parts.clone(),
        together,
        answered: false,
    };
    let asking = async {
        let reply = exchange.handle(request).await?;
        let handed_on = member.hand_on(reply).await;
        match handed_on {
            // A second answer to one request would be worse than a fault untold.
            Err(Stopped::Failed(error)) if !member.answered => {
                Err(Fault::on(&session.leg(), error))
            }
            _ => Ok(()),
        }
    };
    let asked = tokio::select! {
        asked = asking => asked,
        () = parts.closed() => return,
    };
    if let Err(fault) = asked {
        registry.metrics.refused(fault.row().name);
        let body = fault.body(Some(&id));
        // A client that left needs no answer.
        drop(parts.send(Part::Message(body.into())).await);
    }
}

// === impl Member ===

impl Member {
    /// Hands on everything that a reply says, if the answer is in it.
    async fn hand_on(&mut self, reply: Reply) -> Result<(), Stopped> {
        let not_mcp = match &reply {
            Reply::Message { sent_as, .. } if !sent_as.is_good() => Some(sent_as.not_mcp()),
            _ => None,
        };
        match reply {
            Reply::Accepted | Reply::Batch(_) => {}
            Reply::Message { body, .. } => self.say_all(body).await?,
            Reply::Events(events) => {
                self.part(Part::Streams).await?;
                let mut decoder = Decoder::new(MAX_EVENT);
                self.say_events(&mut decoder, events).await?;
            }
            Reply::Stream(outlet) => self.read_out(outlet).await?,
        }
        match not_mcp {
            _ if self.answered => Ok(()),
            Some(error) => Err(Stopped::Failed(error)),
            None => Err(StreamError::NoAnswer.into()),
        }
    }

    async fn read_out(&mut self, mut outlet: Outlet) -> Result<(), Stopped> {
        if !outlet.is_events {
            // Until it is handed on: else there would be one answer in memory for each member.
            let reading = Arc::clone(&self.together.reading).lock_owned().await;
            let body = whole(&mut outlet).await?;
            let said = self.say_all(body).await;
            drop(reading);
            return said;
        }
        self.part(Part::Streams).await?;
        let mut decoder = Decoder::new(MAX_EVENT);
        while let Some(events) = poll_fn(|cx| outlet.poll_next(cx)).await {
            self.say_events(&mut decoder, events?).await?;
        }
        Ok(())
    }

    /// Says what is in events. Event ids, comments and retry times belong to a stream that this client does
    /// not have: it could not resume one member of many.
    async fn say_events(&mut self, decoder: &mut Decoder, events: Bytes) -> Result<(), Stopped> {
        decoder.push(events);
        while let Some(event) = decoder.next_event().map_err(StreamError::from)? {
            if let Some(data) = event.data().filter(|data| !data.is_empty()) {
                self.say(Bytes::copy_from_slice(&data)).await?;
            }
        }
        Ok(())
    }

    /// Says a whole answer, which may be an array itself.
    async fn say_all(&mut self, body: Bytes) -> Result<(), Stopped> {
        if !batch::is_batch(&body) {
            return self.say(body).await;
        }
        for member in batch::split(&body, usize::MAX).unwrap_or_default() {
            self.say(member).await?;
        }
        Ok(())
    }

    /// Says one message. What is none would spoil the others' array.
    async fn say(&mut self, data: Bytes) -> Result<(), Stopped> {
        let Ok(message) = Message::from_server(data) else {
            return Ok(());
        };
        self.answered |= message.answers(&self.id);
        self.part(Part::Message(message.raw().clone())).await
    }

    async fn part(&self, part: Part) -> Result<(), Stopped> {
        self.parts.send(part).await.map_err(|_| Stopped::Left)
    }
}

/// An answer that arrives in frames, once it is there.
async fn whole(outlet: &mut Outlet) -> Result<Bytes, Stopped> {
    let mut body = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| outlet.poll_next(cx)).await {
        body.extend_from_slice(&frame?);
        if body.len() > MAX_HELD_ANSWER {
            return Err(Stopped::Failed(ReadError::TooLarge(MAX_HELD_ANSWER).into()));
        }
    }
    Ok(body.freeze())
}

// === impl Stopped ===

impl From<StreamError> for Stopped {
    fn from(error: StreamError) -> Self {
        Self::Failed(error.into())
    }
}
