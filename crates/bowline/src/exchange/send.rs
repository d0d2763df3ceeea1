//! Sends a client's request over a leg, once, and turns what the server answers into a reply.

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::batch;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bytes::Bytes;

use crate::exchange::reply::Reply;
use crate::exchange::stream::relay::{EventRelay, FrameRelay, Relay};
use crate::exchange::tool_filter::ActiveFilter;
use crate::exchange::tool_lesson::ToolLesson;
use crate::fault::Fault;
use crate::leg::marks::{Repeated, StreamOrigin};
use crate::leg::rewrite::Rewrite;
use crate::leg::{Leg, array};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::session::{Call, ClientState, Session};
use crate::upstream::{
    Carried, Frames, Link, MAX_HELD_ANSWER, Outcome, Reading, Repeat, SMALL_ANSWER, SentAs,
    StreamError, UpstreamError, Whole,
};

/// A client's request, and what it is sent with.
#[derive(Debug, Clone)]
pub(crate) struct Request<'a> {
    pub(crate) session: &'a Arc<Session>,
    pub(crate) message: Message,
    /// It receives a cancel, also while the response streams.
    pub(crate) call: Arc<Call>,
    pub(crate) carried: &'a Carried,
    pub(crate) sent: Sent,
}

/// The answer to a request that was sent once.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) reply: Reply<Relay>,
    /// Servers that have lost a session also answer like this: only a ping can tell.
    pub(crate) may_deny_session: bool,
}

/// Sends the request once. Nothing is recovered or sent again for it.
pub(crate) async fn once(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &mut SentRequest,
    repeat: Repeat,
) -> Result<Attempt, UpstreamError> {
    let (session, carried) = (request.session, request.carried);
    sent_request.lesson = ToolLesson::of(session, leg, &sent_request.message).await;
    let (sent_request, message) = (&*sent_request, &sent_request.message);
    #[cfg(feature = "planted")]
    if planted::has(Bug::DrainedIsDeaf) && !leg.upstream.is_configured(&leg.endpoint) {
        return Err(UpstreamError::deaf());
    }
    let reading = Reading {
        limit: sent_request.holds(leg),
        own: sent_request.own_id.as_ref().map(RawIdBuf::as_id),
    };
    let link = Link {
        repeat,
        ..leg.link(carried)
    };
    let sent = request.sent.clone();
    let sending = leg.upstream.request(link, message, reading, sent);
    let outcome = sending.await.map_err(|error| match error {
        UpstreamError::AnotherId | UpstreamError::Stream(StreamError::AnotherId) => {
            another_id(session)
        }
        error => error,
    })?;
    let may_deny_session = matches!(&outcome, Outcome::Message(whole) if whole.may_deny_session);
    let reply = match outcome {
        Outcome::Message(whole) => whole_reply(request, leg, sent_request, whole)?,
        Outcome::Events(source) => {
            let events = EventRelay::new(source, rewrite(session, leg, sent_request))
                .of(session, leg)
                .answering(sent_request.lesson, leg.upstream.config());
            Reply::Stream(Relay::Events(Box::new(events)))
        }
        Outcome::Frames(frames) => large_reply(request, leg, sent_request, frames),
    };
    Ok(Attempt {
        reply,
        may_deny_session,
    })
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    pub(crate) message: Message,
    /// The client's own id, if it carries one of Bowline's.
    pub(crate) own_id: Option<RawIdBuf>,
    /// The client has seen the beginning of a response. What it has seen is not sent again, so nothing of the
    /// new response is read ahead.
    pub(crate) continues_stream: bool,
    /// A recovery has to repeat it, once the server has accepted it.
    pub(crate) is_restorable: bool,
    /// What the response says about tools.
    pub(crate) lesson: ToolLesson,
}

impl SentRequest {
    /// Under the client's own id, unless another call has that.
    pub(crate) fn first(request: &Request<'_>) -> Self {
        let shares_id = request.call.shares_id(request.session);
        #[cfg(feature = "planted")]
        let shares_id = shares_id && !planted::has(Bug::EqualIdsMeet);
        let (message, session) = (&request.message, request.session);
        // A client of several servers hears of a request's progress from nobody else.
        let is_of_member = session.leg().generation.is_of_member();
        let id = message.id().unwrap_or_default();
        let own = Self {
            message: match is_of_member {
                true => with_own_token(session, message.clone(), id),
                false => message.clone(),
            },
            own_id: None,
            continues_stream: false,
            is_restorable: ClientState::is_restorable(message),
            lesson: ToolLesson::Nothing,
        };
        if shares_id {
            return own.again(request);
        }
        own
    }

    /// The same request under an id of Bowline's own, which its cancel carries, too, and with a token of its own for
    /// its progress: the first attempt may still tell its progress, on the same channel.
    pub(crate) fn again(&self, request: &Request<'_>) -> Self {
        match renamed(request) {
            Some((message, own_id)) => {
                if let Some(id) = message.id() {
                    request.call.mark_sent_as(id);
                }
                Self {
                    message,
                    own_id: Some(own_id),
                    ..*self
                }
            }
            None => self.clone(),
        }
    }

    /// How much of a response is buffered before any of it is passed on.
    fn holds(&self, leg: &Leg) -> usize {
        // A response that continues a stream becomes one event, so it must be complete. A tools list and the
        // response to a restorable request are inspected, and that of a member says whose it is.
        let is_inspected =
            self.lesson.is_listing() || self.is_restorable || leg.generation.is_of_member();
        match self.continues_stream || is_inspected {
            true => MAX_HELD_ANSWER,
            false => SMALL_ANSWER,
        }
    }

    /// A complete response with the client's own id.
    fn with_client_id(&self, body: Bytes) -> Bytes {
        let Some(own) = &self.own_id else {
            return body;
        };
        let asked = self.message.id().unwrap_or_default();
        let answer = Message::from_server(body.clone()).ok();
        let answer = answer.filter(|answer| answer.answers(asked));
        match answer.as_ref().map(|answer| (answer, answer.id_span())) {
            Some((answer, Some(span))) => answer.splice(span, own.as_str()),
            _ => body,
        }
    }
}

/// The request of this id with a token of Bowline's own, if it asks for progress.
fn with_own_token(session: &Session, message: Message, id: RawId<'_>) -> Message {
    let own = message.progress_token().and_then(|span| {
        let token = RawId::new(message.text(span));
        let leg = session.leg().generation;
        Some((span, session.seal.own_token(leg, id, token)?))
    });
    match own {
        Some((span, own)) => message.replaced(span, own.as_str()),
        None => message,
    }
}

/// The request under an id of Bowline's own, with a token of its own if it asks for progress; and the client's id.
fn renamed(request: &Request<'_>) -> Option<(Message, RawIdBuf)> {
    let (message, session) = (&request.message, request.session);
    let leg = session.leg().generation.leg;
    let (span, own) = (message.id_span()?, message.id()?);
    let ours = session.seal.repeat(Repeated::Id, leg, own)?;
    let renamed = Message::parse(message.splice(span, ours.as_str())).ok()?;
    Some((with_own_token(session, renamed, own), own.to_buf()))
}

/// The reply for a response that is too large to be held.
fn large_reply(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    frames: Frames,
) -> Reply<Relay> {
    let session = request.session;
    sent_request.lesson.miss(session);
    if sent_request.lesson.is_listing() && ActiveFilter::of(&session.upstream).is_some() {
        // What is not held cannot be filtered.
        return Reply::refusal(session, &request.message, &Fault::ToolsNotFiltered);
    }
    let frames = FrameRelay::new(frames, session.hash, leg);
    Reply::Stream(Relay::Frames(Box::new(frames)))
}

/// The reply for a complete response.
fn whole_reply(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    whole: Whole,
) -> Result<Reply<Relay>, UpstreamError> {
    let session = request.session;
    let id = sent_request.message.id().unwrap_or_default();
    let mut body = whole.body;
    if batch::is_batch(&body) && !whole.may_deny_session {
        let marked = array::marked(body.clone(), &rewrite(session, leg, sent_request))?;
        if !array::has_answer_to(&body, id) {
            return Err(another_id(session));
        }
        body = marked;
    }
    let body = sent_request.with_client_id(body);
    let body = match leg.generation.is_of_member() && !batch::is_batch(&body) {
        true => said_by(leg, body, &whole.sent_as)?,
        false => body,
    };
    let rewrite = || rewrite(session, leg, sent_request);
    let body = match ActiveFilter::of(&session.upstream) {
        None => body,
        Some(filter) => {
            let is_good = whole.sent_as.is_good();
            match filter.whole(sent_request.lesson, body, is_good) {
                Ok(body) => body,
                Err(why) => return Ok(Reply::refusal(session, &request.message, &why)),
            }
        }
    };
    sent_request.lesson.take_whole(session, leg, rewrite, &body);
    Ok(Reply::Message {
        body,
        sent_as: whole.sent_as,
    })
}

/// A member's answer, which says whose it is.
fn said_by(leg: &Leg, body: Bytes, sent_as: &SentAs) -> Result<Bytes, UpstreamError> {
    let reserved = leg.upstream.reserved.of_union();
    match reserved.cleared_answer(body.clone()) {
        Some(said) => Ok(said),
        // A refusal in some other format, without anything that would have been changed.
        None if !sent_as.is_good()
            && Message::from_server(body.clone()).is_err()
            && !reserved.scan().finds(&body) =>
        {
            Ok(body)
        }
        None => Err(StreamError::Unreadable.into()),
    }
}

#[cold]
fn another_id(session: &Session) -> UpstreamError {
    let server = &session.upstream.name;
    tracing::warn!(session = %session.hash, %server, "response with another id dropped");
    UpstreamError::AnotherId
}

fn rewrite(session: &Session, leg: &Leg, sent_request: &SentRequest) -> Rewrite {
    let sent_as = || sent_request.message.id().unwrap_or_default().to_buf();
    let id = sent_request.own_id.clone().unwrap_or_else(sent_as);
    let reserved = leg.upstream.reserved.clone();
    Rewrite::new(
        session.seal.clone(),
        leg.generation,
        StreamOrigin::Request(id),
        reserved,
    )
}
