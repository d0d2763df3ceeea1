//! One message over a leg, and what comes back.

use std::sync::Arc;

use bowline_wire::message::Message;
use bowline_wire::{media, version};
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;

use super::array;
use super::relay::{EventRelay, Relay};
use super::rewrite::Rewrite;
use crate::body::{Sent, read_limited};
use crate::fault::codes;
use crate::session::{Born, Session};
use crate::upstream::{Answer, Carried, UpstreamError};

/// The largest answer that is held whole where it must be looked into.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// Answers of a known length up to this are passed on whole: cheaper than a stream of one frame.
const SMALL_ANSWER: u64 = 64 * 1024;

/// What answers a client's message.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Taken, and there is nothing to say.
    Accepted,
    /// One body, held whole.
    Whole {
        status: StatusCode,
        content_type: Option<HeaderValue>,
        body: Bytes,
    },
    /// A body that arrives in pieces.
    Stream {
        status: StatusCode,
        content_type: Option<HeaderValue>,
        relay: Relay,
    },
}

/// Sends a request over the session's leg.
pub(crate) async fn request(
    session: Arc<Session>,
    message: Message,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let leg = &session.leg;
    let answer = leg
        .upstream
        .post(leg.link(), carried, message.raw().clone(), sent)
        .await?;
    if answer.denies_session() {
        return judge_denial(answer, &message).await;
    }
    let rewrite = || {
        let born = Born::Request(message.id().unwrap_or_default().into());
        Rewrite::new(session.seal.clone(), leg.at, born)
    };
    if answer.status == StatusCode::OK && !answer.is(media::EVENT_STREAM) {
        let may_be_array = version::has_batches(leg.version()) && answer.is(media::JSON);
        let length = answer.body.size_hint().exact();
        if length.is_some_and(|length| length <= SMALL_ANSWER) {
            let (status, content_type) = (answer.status, answer.content_type().cloned());
            let mut body = read_limited(answer.body, MAX_HELD_ANSWER).await?;
            if may_be_array {
                body = array::marked(body, &rewrite())?;
            }
            return Ok(Reply::Whole {
                status,
                content_type,
                body,
            });
        }
        if may_be_array {
            return array::look_into(answer, &rewrite()).await;
        }
    }
    Reply::of(answer, Some(rewrite()))
}

/// Sends what nobody answers: a notification, or the client's answer to a server's request.
pub(crate) async fn notify(
    session: Arc<Session>,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let leg = &session.leg;
    let answer = leg.upstream.post(leg.link(), carried, body, sent).await?;
    if answer.denies_session() {
        return Err(UpstreamError::SessionLost);
    }
    if answer.status.is_success() {
        return Ok(Reply::Accepted);
    }
    Reply::of(answer, None)
}

/// A 404 means that the session is lost, unless its body is the application's own answer to this
/// very request: then the request ran, and the answer is the client's.
async fn judge_denial(answer: Answer, request: &Message) -> Result<Reply, UpstreamError> {
    let (status, content_type) = (answer.status, answer.content_type().cloned());
    let Ok(body) = read_limited(answer.body, MAX_HELD_ANSWER).await else {
        return Err(UpstreamError::SessionLost);
    };
    let answers_request = Message::parse(body.clone()).is_ok_and(|message| {
        message.id() == request.id() && message.error_code() != Some(codes::SESSION_NOT_FOUND)
    });
    if !answers_request {
        return Err(UpstreamError::SessionLost);
    }
    Ok(Reply::Whole {
        status,
        content_type,
        body,
    })
}

// === impl Reply ===

impl Reply {
    /// The reply as one body, read to its end.
    pub(crate) async fn into_whole(self) -> (StatusCode, Option<HeaderValue>, Bytes) {
        match self {
            Self::Accepted => (StatusCode::ACCEPTED, None, Bytes::new()),
            Self::Whole {
                status,
                content_type,
                body,
            } => (status, content_type, body),
            Self::Stream {
                status,
                content_type,
                relay,
            } => (status, content_type, relay.read_out().await),
        }
    }

    /// A stream of events.
    pub(crate) fn events(relay: Relay) -> Self {
        Self::Stream {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
            relay,
        }
    }

    /// An upstream's answer as it came, if it is one that a client can read.
    pub(crate) fn of(answer: Answer, rewrite: Option<Rewrite>) -> Result<Self, UpstreamError> {
        if answer.status == StatusCode::ACCEPTED {
            return Ok(Self::Accepted);
        }
        if answer.status == StatusCode::OK
            && let Some(rewrite) = rewrite
            && answer.is(media::EVENT_STREAM)
        {
            let events = EventRelay::new(answer.body, rewrite);
            return Ok(Self::events(Relay::Events(events)));
        }
        if !answer.is(media::JSON) {
            return Err(UpstreamError::NotMcp(answer.status));
        }
        Ok(Self::Stream {
            status: answer.status,
            content_type: answer.headers.get(header::CONTENT_TYPE).cloned(),
            relay: Relay::Frames {
                first: None,
                body: answer.body,
            },
        })
    }
}
