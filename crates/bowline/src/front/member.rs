//! A request within a batch: its exchange, read to the end as a client would, message by message.

use std::sync::Arc;

use bowline_wire::message::Message;
use bowline_wire::sse::Decoder;
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;

use super::batch::{Part, Parts, Together};
use super::exchange::Exchange;
use super::reply::ReplyBody;
use crate::body::{ReadError, read_limited};
use crate::leg::{MAX_EVENT, MAX_HELD_ANSWER, StreamError};
use crate::upstream::UpstreamError;

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
pub(super) async fn ask(exchange: Exchange, request: Message, parts: Parts, together: Together) {
    let id: Box<str> = request.id().unwrap_or_default().into();
    let shared = Arc::clone(&exchange.shared);
    let session = Arc::clone(exchange.in_use.session());
    let mut member = Member {
        id: id.clone(),
        parts: parts.clone(),
        together,
        answered: false,
    };
    let asking = async {
        let response = exchange.serve(request).await?;
        let handed_on = member.hand_on(response).await;
        match handed_on {
            // A second answer to one request would be worse than a fault untold.
            Err(Stopped::Failed(error)) if !member.answered => Err(session.leg().fault(error)),
            _ => Ok(()),
        }
    };
    let asked = tokio::select! {
        asked = asking => asked,
        () = parts.closed() => return,
    };
    if let Err(fault) = asked {
        shared.metrics.refused(fault.telling().reason);
        let body = fault.body(Some(&id));
        // A client that left needs no answer.
        drop(parts.send(Part::Message(body.into())).await);
    }
}

// === impl Member ===

impl Member {
    /// Hands on everything that a response says, if the answer is in it.
    async fn hand_on(&mut self, response: Response<ReplyBody>) -> Result<(), Stopped> {
        let status = response.status();
        self.read_out(response).await?;
        match status {
            _ if self.answered => Ok(()),
            StatusCode::OK => Err(StreamError::NoAnswer.into()),
            status => Err(Stopped::Failed(UpstreamError::NotMcp(status))),
        }
    }

    async fn read_out(&mut self, response: Response<ReplyBody>) -> Result<(), Stopped> {
        let (head, mut body) = response.into_parts();
        if !media::is(head.headers.get(CONTENT_TYPE), media::EVENT_STREAM) {
            // Until it is handed on: else there would be one answer in memory for each member.
            let reading = match body {
                ReplyBody::Whole(_) => None,
                _ => Some(Arc::clone(&self.together.reading).lock_owned().await),
            };
            let body = read_limited(body, MAX_HELD_ANSWER).await?;
            let said = self.say_all(body).await;
            drop(reading);
            return said;
        }
        self.part(Part::Streams).await?;
        let mut decoder = Decoder::new(MAX_EVENT);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            decoder.push(data);
            while let Some(event) = decoder.next_event().map_err(StreamError::from)? {
                // Event ids, comments and retry times belong to a stream that this client does
                // not have: it could not resume one member of many.
                if let Some(data) = event.data().filter(|data| !data.is_empty()) {
                    self.say(Bytes::copy_from_slice(&data)).await?;
                }
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
        let Ok(message) = Message::parse(data) else {
            return Ok(());
        };
        self.answered |= message.answers(&self.id);
        self.part(Part::Message(message.raw().clone())).await
    }

    async fn part(&self, part: Part) -> Result<(), Stopped> {
        self.parts.send(part).await.map_err(|_| Stopped::Left)
    }
}

// === impl Stopped ===

impl From<StreamError> for Stopped {
    fn from(error: StreamError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<ReadError<StreamError>> for Stopped {
    fn from(error: ReadError<StreamError>) -> Self {
        match error {
            ReadError::TooLarge(limit) => Self::Failed(ReadError::TooLarge(limit).into()),
            ReadError::Broken(error) => error.into(),
        }
    }
}
