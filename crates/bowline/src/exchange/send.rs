//! Sends a client's request over its session's leg until it is answered or its outcome is known. If that
//! fails, the session is recovered, and the request is retried if that is safe.

use std::sync::Arc;

use bowline_egress::Sent;
use bowline_wire::batch;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bytes::Bytes;

use crate::exchange::call_timeout::CallTimeout;
use crate::exchange::recovery::memory::{Memory, is_result};
use crate::exchange::recovery::{Cause, recover_in_background};
use crate::exchange::replay::own_list;
use crate::exchange::replay::retry::{self, is_safe, recovered};
use crate::exchange::replay::tool_hints::ToolLesson;
use crate::exchange::reply::{Arriving, Reply};
use crate::exchange::stream::relay::{EventRelay, FrameRelay, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::exchange::tool_filter::{self, ActiveFilter};
use crate::fault::Fault;
use crate::leg::marks::{Repeated, StreamOrigin};
use crate::leg::rewrite::Rewrite;
use crate::leg::{Leg, array};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::session::{Call, ClientState, Session};
use crate::upstream::{
    Carried, Epoch, Frames, LiveError, MAX_HELD_ANSWER, Outcome, Reading, SMALL_ANSWER, SentAs,
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

/// Sends a request over the session's leg.
pub(crate) fn request<'a>(
    session: &'a Arc<Session>,
    message: Message,
    carried: &'a Carried,
    sent: Sent,
) -> impl Future<Output = Result<Reply<Arriving>, UpstreamError>> + use<'a> {
    session.note_request(&message);
    let call = Call::begin(session, message.id().unwrap_or_default());
    let leg = session.leg();
    let timeout = CallTimeout::of(session, &call);
    let request = Request {
        session,
        message,
        call,
        carried,
        sent,
    };
    let sent_request = SentRequest::first(&request);
    send_until_answered(request, leg, sent_request, timeout)
}

/// Sends a request again whose response broke on the leg `old`.
pub(crate) async fn request_again(
    request: Request<'_>,
    old: &Arc<Leg>,
    leg: Arc<Leg>,
    timeout: Option<CallTimeout>,
) -> Result<Reply<Arriving>, UpstreamError> {
    // It is not running in a new generation.
    let is_running = old.generation == leg.generation;
    if !is_running {
        request.call.forget_ids();
    }
    let mut sent_request = SentRequest {
        continues_stream: true,
        ..SentRequest::first(&request)
    };
    if is_running {
        sent_request = sent_request.again(&request);
    }
    send_until_answered(request, leg, sent_request, timeout).await
}

/// Sends a request of Bowline's own, once: nothing is recovered or sent again for it.
pub(crate) async fn request_once(
    request: &Request<'_>,
    leg: &Arc<Leg>,
) -> Result<Reply<Arriving>, UpstreamError> {
    answer(request, leg, &mut SentRequest::first(request)).await
}

async fn send_until_answered(
    request: Request<'_>,
    mut leg: Arc<Leg>,
    mut sent_request: SentRequest,
    mut timeout: Option<CallTimeout>,
) -> Result<Reply<Arriving>, UpstreamError> {
    let Request {
        session, message, ..
    } = &request;
    if sent_request.is_restorable
        && let Err(full) = session.client_state.has_room_for(message)
    {
        return Ok(Reply::refusal(session, message, &full.into()));
    }
    if leg.is_lost() {
        if let Err(refused) = tool_filter::check_call(&leg, message) {
            return Ok(Reply::refusal(session, message, &refused));
        }
        let recovering = recovered(&request, &leg, Cause::Lost);
        let recovering = CallTimeout::within_recovery(&mut timeout, &request, &leg, recovering);
        leg = Box::pin(recovering).await?;
    }
    let reply = loop {
        if !leg.missing_lists.is_nothing()
            && let Some(result) = leg.missing_lists.empty_list(message.method())
        {
            return Ok(Reply::result(message, result));
        }
        // For each attempt, because the operator may change the filter in between.
        if let Err(refused) = tool_filter::check_call(&leg, message) {
            return Ok(Reply::refusal(session, message, &refused));
        }
        if let Some(listing) = own_list::before_call(&request, &leg) {
            Box::pin(listing.wait(&request, &leg)).await?;
        }
        request.call.mark_sent(session.upstream.tool_hints.now());
        let response = answer(&request, &leg, &mut sent_request);
        // Wrapping copies the future, and most calls have no timeout.
        let answered = match timeout {
            None => response.await,
            Some(_) => Box::pin(CallTimeout::within(&mut timeout, response)).await,
        };
        let error = match answered {
            Ok(reply) => break reply.with_timeout(timeout.take()),
            Err(error) => error,
        };
        if matches!(error, UpstreamError::Live(LiveError::IdTaken)) && sent_request.own_id.is_none()
        {
            // By a call at another gateway, or by one that was cancelled and may still be answered.
            sent_request = sent_request.again(&request);
            if sent_request.own_id.is_some() {
                continue;
            }
        }
        // Boxed, like all rare paths: a request's future is as large as its largest part.
        let after = retry::after(&request, &leg, error);
        let after = CallTimeout::within_recovery(&mut timeout, &request, &leg, after);
        let next = Box::pin(after).await?;
        if next.generation == leg.generation {
            // The upstream may still run the first request, so the second needs another id.
            sent_request = sent_request.again(&request);
        }
        leg = next;
    };
    Ok(finish(&request, &leg, &sent_request, reply).await)
}

/// Completes the bookkeeping before the client sees the response.
async fn finish(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    reply: Reply<Arriving>,
) -> Reply<Arriving> {
    let reply = match sent_request.is_restorable {
        true => Box::pin(remember(request, leg, reply)).await,
        false => reply,
    };
    if sent_request.lesson.is_listing()
        && let Some(written) = request.session.tools_written()
    {
        // Invalidated tool hints are stored before the client gets the list, because the gateway may be
        // killed in between.
        _ = written.await;
    }
    let rescue = || Box::new(Rescue::request(request, leg));
    match reply {
        Reply::Stream(Arriving {
            relay: Relay::Events(events),
            ..
        }) => match sent_request.continues_stream {
            true => Reply::stream(events, Some(rescue())),
            false => Reply::events(events, || Some(rescue())).await,
        },
        reply => reply,
    }
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    pub(crate) message: Message,
    /// The client's own id, if it carries one of Bowline's.
    own_id: Option<RawIdBuf>,
    /// The client has seen the beginning of a response. What it has seen is not sent again, so nothing of the
    /// new response is read ahead.
    continues_stream: bool,
    /// A recovery has to repeat it, once the server has accepted it.
    is_restorable: bool,
    /// What the response says about tools.
    lesson: ToolLesson,
}

impl SentRequest {
    /// Under the client's own id, unless another call has that.
    fn first(request: &Request<'_>) -> Self {
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
    fn again(&self, request: &Request<'_>) -> Self {
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

/// Sends the request once, and turns the outcome into a reply.
async fn answer(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &mut SentRequest,
) -> Result<Reply<Arriving>, UpstreamError> {
    let (session, carried) = (request.session, request.carried);
    sent_request.lesson = ToolLesson::of(session, leg, &sent_request.message).await;
    let (sent_request, message) = (&*sent_request, &sent_request.message);
    let now = session.upstream.tool_hints.now();
    #[cfg(feature = "planted")]
    if planted::has(Bug::DrainedIsDeaf) && !leg.upstream.is_configured(&leg.endpoint) {
        return Err(UpstreamError::deaf());
    }
    let reading = Reading {
        limit: sent_request.holds(leg),
        own: sent_request.own_id.as_ref().map(RawIdBuf::as_id),
    };
    let send = |link| {
        let upstream = &leg.upstream;
        upstream.request(link, message, reading, request.sent.clone())
    };
    let sent = match send(leg.link(carried)).await {
        // The request is safe to repeat, so the redirect is followed this time.
        Err(error @ UpstreamError::RedirectedAfter(_)) => {
            let goes_on = Box::pin(may_follow(request, leg, message, now)).await;
            match goes_on? {
                true => Box::pin(send(leg.link(carried).safe())).await,
                false => Err(error),
            }
        }
        sent => sent,
    };
    let outcome = sent.map_err(|error| match error {
        UpstreamError::AnotherId | UpstreamError::Stream(StreamError::AnotherId) => {
            another_id(session)
        }
        error => error,
    })?;
    match outcome {
        Outcome::Message(whole) => whole_reply(request, leg, sent_request, whole),
        Outcome::Events(source) => {
            let events = EventRelay::new(source, rewrite(session, leg, sent_request))
                .of(session, leg)
                .answering(sent_request.lesson)
                .suspecting(leg.upstream.config());
            Ok(Reply::stream(Box::new(events), None))
        }
        Outcome::Frames(frames) => Ok(large_reply(request, leg, sent_request, frames)),
    }
}

/// Whether a request may be sent where it was redirected to, although it may have run here.
async fn may_follow(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent: &Message,
    now: Epoch,
) -> Result<bool, UpstreamError> {
    if !is_safe(request.session, sent, leg, now).await {
        return Ok(false);
    }
    Ok(own_list::confirms(request, leg).await? && is_safe(request.session, sent, leg, now).await)
}

/// The reply for a response that is too large to be held.
fn large_reply(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    frames: Frames,
) -> Reply<Arriving> {
    let session = request.session;
    sent_request.lesson.miss(session);
    if sent_request.lesson.is_listing() && ActiveFilter::of(&session.upstream).is_some() {
        // What is not held cannot be filtered.
        return Reply::refusal(session, &request.message, &Fault::ToolsNotFiltered);
    }
    let sent_as = frames.sent_as.clone();
    let frames = FrameRelay::new(frames, session.hash, leg);
    Reply::Stream(Arriving {
        relay: Relay::Frames(Box::new(frames)),
        sent_as,
        // A part was passed on, and there is no event id to resume from.
        rescue: None,
    })
}

/// The reply for a complete response.
fn whole_reply(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    sent_request: &SentRequest,
    whole: Whole,
) -> Result<Reply<Arriving>, UpstreamError> {
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
    if whole.may_deny_session {
        recover_in_background(session, leg, Cause::Unproven, request.carried);
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

/// Remembers what the server has accepted: now, or when the response arrives on the stream.
async fn remember(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    mut reply: Reply<Arriving>,
) -> Reply<Arriving> {
    let Some(memory) = Memory::of(&request.message, request.carried) else {
        return reply;
    };
    match &mut reply {
        Reply::Message { body, .. } if is_result(body) => {
            memory.remember(request.session, leg).await;
        }
        Reply::Stream(Arriving {
            relay: Relay::Events(events),
            ..
        }) => events.remembers(memory),
        _ => {}
    }
    reply
}
