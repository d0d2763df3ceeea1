//! One message over a leg, and what comes back.

use std::sync::Arc;

use bowline_wire::message::Message;
use bowline_wire::{media, version};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body::Body as _;

use super::array;
use super::overtime::Overtime;
use super::relay::{EventRelay, FrameRelay, Relay};
use super::rewrite::Rewrite;
use crate::body::{Sent, read_limited};
use crate::fault::codes;
use crate::session::{Born, Session};
use crate::upstream::{Answer, Carried, UpstreamError};

/// The largest answer that is held whole where it must be looked into.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// Answers of a known length up to this are passed on whole: cheaper than a stream of one frame.
const SMALL_ANSWER: u64 = 64 * 1024;

/// The id cannot be a client's by chance, and if one chose it, the answers do not meet: each goes
/// back on the connection of its own request.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":"bowline/ping","method":"ping"}"#;
/// How long a server that knows nothing of a session may take to say so.
const MAX_PING: std::time::Duration = std::time::Duration::from_secs(5);

/// How much of the body of a mere acceptance is read, and for how long.
const MAX_ACCEPTED_BODY: usize = 4096;
const MAX_ACCEPTED_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

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
        relay: Box<Relay>,
    },
}

/// Sends a request over the session's leg.
pub(crate) async fn request(
    session: Arc<Session>,
    message: Message,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let mut overtime = Overtime::of(&session, &message);
    let answering = answer(&session, &message, carried, sent);
    match &mut overtime {
        None => finish(&session, &message, answering.await?, None),
        Some(patience) => {
            let out_of_patience = std::future::poll_fn(|cx| patience.poll(cx));
            let answered = tokio::select! {
                biased;
                answered = answering => answered?,
                error = out_of_patience => return Err(error),
            };
            finish(&session, &message, answered, overtime)
        }
    }
}

/// What came back for a request: read already, or still to be read.
pub(super) enum Answered {
    Read(Reply),
    /// What is left of it, and what was read to see what it is.
    Arriving(Answer, Option<Bytes>),
}

async fn answer(
    session: &Session,
    message: &Message,
    carried: &Carried,
    sent: Sent,
) -> Result<Answered, UpstreamError> {
    let leg = &session.leg;
    let answer = leg
        .upstream
        .post(leg.link(carried), message.raw().clone(), sent)
        .await?;
    if answer.denies_session() {
        return judge_denial(answer, message).await.map(Answered::Read);
    }
    let length = answer.body.size_hint().exact();
    let is_small = length.is_some_and(|length| length <= SMALL_ANSWER);
    let is_json = answer.status == StatusCode::OK && answer.is(media::JSON);
    let may_be_array = is_json && version::has_batches(leg.version());
    if may_be_array {
        return array::look_into(answer, &rewrite(session, message)).await;
    }
    if is_json && is_small {
        return Reply::whole(answer).await.map(Answered::Read);
    }
    Ok(Answered::Arriving(answer, None))
}

fn rewrite(session: &Session, request: &Message) -> Rewrite {
    let born = Born::Request(request.id().unwrap_or_default().into());
    Rewrite::new(session.seal.clone(), session.leg.at, born)
}

fn finish(
    session: &Session,
    message: &Message,
    answered: Answered,
    overtime: Option<Overtime>,
) -> Result<Reply, UpstreamError> {
    let (answer, first) = match answered {
        Answered::Read(reply) => return Ok(reply),
        Answered::Arriving(answer, first) => (answer, first),
    };
    if answer.status == StatusCode::ACCEPTED {
        return Ok(Reply::Accepted);
    }
    if answer.status == StatusCode::OK && answer.is(media::EVENT_STREAM) {
        let events = EventRelay::new(answer.body, rewrite(session, message));
        let events = events.with_overtime(overtime);
        return Ok(Reply::events(events));
    }
    if !answer.is(media::JSON) {
        return Err(UpstreamError::NotMcp(answer.status));
    }
    Ok(Reply::Stream {
        status: answer.status,
        content_type: answer.content_type().cloned(),
        relay: Box::new(Relay::Frames(FrameRelay::new(first, answer.body, overtime))),
    })
}

/// Sends what nobody answers: a notification, or the client's answer to a server's request.
pub(crate) async fn notify(
    session: Arc<Session>,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let leg = &session.leg;
    let answer = leg.upstream.post(leg.link(carried), body, sent).await?;
    if answer.denies_session() {
        return Err(UpstreamError::SessionLost);
    }
    if !answer.status.is_success() {
        return Reply::whole(answer).await;
    }
    if !answer.body.is_end_stream() {
        // An empty body that is not announced as empty: read, so that the connection can be reused.
        let rest = read_limited(answer.body, MAX_ACCEPTED_BODY);
        drop(tokio::time::timeout(MAX_ACCEPTED_WAIT, rest).await);
    }
    Ok(Reply::Accepted)
}

/// Whether the upstream still knows the session: a ping of our own, whose answer goes to nobody.
pub(super) async fn is_alive(session: &Session) -> bool {
    let (leg, carried) = (&session.leg, Carried::default());
    let pinged = leg.upstream.post(
        leg.link(&carried),
        Bytes::from_static(PING),
        Sent::default(),
    );
    let pinged = tokio::time::timeout(MAX_PING, pinged).await;
    !matches!(pinged, Ok(Ok(answer)) if answer.denies_session())
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
    /// An upstream's answer read to its end, if it is one that a client can read.
    pub(crate) async fn whole(answer: Answer) -> Result<Self, UpstreamError> {
        if !answer.is(media::JSON) {
            return Err(UpstreamError::NotMcp(answer.status));
        }
        Ok(Self::Whole {
            status: answer.status,
            content_type: answer.content_type().cloned(),
            body: read_limited(answer.body, MAX_HELD_ANSWER).await?,
        })
    }

    /// The reply as far as it was read: what else a stream would bring is given up.
    pub(crate) fn into_held(self) -> Self {
        match self {
            Self::Stream {
                status,
                content_type,
                relay,
            } => Self::Whole {
                status,
                content_type,
                body: relay.into_held(),
            },
            whole => whole,
        }
    }

    /// A stream of events.
    pub(crate) fn events(events: EventRelay) -> Self {
        Self::Stream {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
            relay: Box::new(Relay::Events(events)),
        }
    }
}
