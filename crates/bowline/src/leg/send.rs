//! One message over a leg, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::message::{Kind, Message, is_answer_to};
use bowline_wire::{batch, media};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

use super::again::{self, is_forgotten, is_safe, mended};
use super::held::{Held, Holding};
use super::judge::is_readable;
use super::lesson::Lesson;
use super::memory::{Memory, is_result};
use super::mend::{Cause, mend, mend_behind};
use super::outcome::{Known, outcome};
use super::overtime::Overtime;
use super::passing::Passing;
use super::relay::{EventRelay, FrameRelay, Relay, StreamError};
use super::restore::retry_after;
use super::rewrite::Rewrite;
use super::{Leg, LegRef, Rescue, array, judge, renamed};
use crate::body::{Sent, read_limited};
use crate::fault::Fault;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::session::{Believed, Born, Call, News, Session};
use crate::upstream::{Answer, Carried, UpstreamError, is_fingerprint, is_suspect};

/// The largest answer that is held whole where it must be looked into.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// JSON answers up to this are held whole before any of it is passed on.
const SMALL_ANSWER: usize = 64 * 1024;

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
        /// How to go on if it breaks.
        rescue: Option<Box<Rescue>>,
    },
}

/// Sends a request over the session's leg; where that breaks, the session is mended, and the
/// request goes again if it may.
pub(crate) fn request(
    session: &Arc<Session>,
    message: Message,
    carried: &Carried,
    sent: Sent,
) -> impl Future<Output = Result<Reply, UpstreamError>> {
    let call = Call::begin(session, message.id().unwrap_or_default());
    let asked = Asked::first(&message);
    let leg = session.leg();
    let overtime = Overtime::of(session, &message);
    send_until_answered(
        session,
        leg,
        (message, call),
        asked,
        carried,
        sent,
        overtime,
    )
}

/// Sends a request again whose answer broke off on the leg `old`.
pub(super) async fn request_again(
    session: &Arc<Session>,
    old: &Arc<Leg>,
    leg: Arc<Leg>,
    (message, call): (Message, Arc<Call>),
    carried: &Carried,
    sent: Sent,
    overtime: Option<Overtime>,
) -> Result<Reply, UpstreamError> {
    let mut asked = Asked {
        goes_on: true,
        ..Asked::first(&message)
    };
    if old.at == leg.at {
        asked = asked.again(&message, &call);
    } else {
        // Nothing of it is under way there.
        call.goes_as(None);
    }
    let request = (message, call);
    send_until_answered(session, leg, request, asked, carried, sent, overtime).await
}

async fn send_until_answered(
    session: &Arc<Session>,
    mut leg: Arc<Leg>,
    (message, call): (Message, Arc<Call>),
    mut asked: Asked,
    carried: &Carried,
    sent: Sent,
    mut overtime: Option<Overtime>,
) -> Result<Reply, UpstreamError> {
    let is_memorable = asked.is_memorable;
    if is_memorable && let Err(full) = session.believed.has_room_for(&message) {
        return Ok(Reply::refusal(session, &message, &full.into()));
    }
    if leg.is_lost() {
        let mending = mended(session, &leg, Cause::Lost, (&call, &sent), carried);
        let mending = Overtime::within_mending(&mut overtime, session, &leg, mending, carried);
        leg = Box::pin(mending).await?;
    }
    let finished = loop {
        if !leg.lacks.is_nothing()
            && let Some(result) = leg.lacks.empty_list(message.method())
        {
            return Ok(Reply::result(&message, result));
        }
        call.is_sent(session.upstream.tools.now());
        let answering = answer(session, &leg, &mut asked, carried, sent.clone());
        // What is wrapped is copied, and most calls have all the time they want.
        let answered = match overtime {
            None => answering.await,
            Some(_) => Box::pin(Overtime::within(&mut overtime, answering)).await,
        };
        let error = match answered {
            Ok(answered) => {
                break finish(session, &leg, &asked, carried, answered, overtime.take());
            }
            Err(error) => error,
        };
        // Boxed, like everything that is rare: every request's future is as large as its largest part.
        let after = again::after(session, &leg, &message, (&call, &sent), carried, error);
        let after = Overtime::within_mending(&mut overtime, session, &leg, after, carried);
        let next = Box::pin(after).await?;
        if next.at == leg.at {
            // The upstream may still be at work on the first: two requests, two ids.
            asked = asked.again(&message, &call);
        }
        leg = next;
    };
    let finished = match is_memorable {
        true => Box::pin(remembered(session, &leg, &message, carried, finished)).await,
        false => finished,
    };
    if asked.lesson.is_listing()
        && let Some(written) = session.tools_written()
    {
        // What is taken back is written before the client hears so: a gateway may be killed in between.
        _ = written.await;
    }
    let rescue = || Box::new(Rescue::request(session, &leg, (&message, &call), carried));
    Ok(match finished {
        Finished::Reply(reply) => reply,
        Finished::Events(events) if asked.goes_on => Reply::stream(events, Some(rescue())),
        Finished::Events(events) => Reply::events(events, || Some(rescue())).await,
    })
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) message: Message,
    /// It goes under an id of ours.
    is_renamed: bool,
    /// The client has seen the beginning of an answer: what it knows already is not told again, so
    /// nothing of this one is read before that is known.
    goes_on: bool,
    /// A recovery would have to say it again, once the server has accepted it.
    is_memorable: bool,
    /// What the answer teaches.
    lesson: Lesson,
}

impl Asked {
    fn first(message: &Message) -> Self {
        Self {
            message: message.clone(),
            is_renamed: false,
            goes_on: false,
            is_memorable: Believed::is_memorable(message),
            lesson: Lesson::Nothing,
        }
    }

    /// The same request under an id of our own, which its cancel will carry, too.
    fn again(&self, original: &Message, call: &Call) -> Self {
        let (Some(span), Some(id)) = (original.id_span(), original.id()) else {
            return self.clone();
        };
        let ours = renamed::renamed(id, call.next_repeat());
        match Message::parse(original.splice(span, &ours)) {
            Ok(message) => {
                call.goes_as(Some(&ours));
                Self {
                    message,
                    is_renamed: true,
                    ..*self
                }
            }
            Err(_) => self.clone(),
        }
    }

    /// How much of an answer is held before any of it is passed on.
    fn holds(&self) -> usize {
        // What goes on as an event must be whole; a listing is looked into, and so is the answer to what
        // would be restored.
        let is_looked_into = self.lesson.is_listing() || self.is_memorable;
        match self.goes_on || is_looked_into {
            true => MAX_HELD_ANSWER,
            false => SMALL_ANSWER,
        }
    }

    /// A whole answer under the client's own id.
    fn restore(&self, body: Bytes) -> Bytes {
        if !self.is_renamed {
            return body;
        }
        let answer = Message::parse(body.clone()).ok();
        let given_back = answer.and_then(|answer| renamed::given_back(&answer));
        given_back.unwrap_or(body)
    }
}

/// What came back for a request: read already, or still to be read.
pub(super) enum Answered {
    Read(Reply),
    /// What is left of it, and what was read to see what it is.
    Arriving(Answer, Passing),
}

async fn answer(
    session: &Session,
    leg: &Leg,
    asked: &mut Asked,
    carried: &Carried,
    sent: Sent,
) -> Result<Answered, UpstreamError> {
    asked.lesson = Lesson::of(session, leg, &asked.message).await;
    let (asked, message) = (&*asked, &asked.message);
    let now = session.upstream.tools.now();
    let post = |link| {
        let posting = leg.upstream.post(link, message.raw().clone(), sent.clone());
        #[cfg(feature = "planted")]
        let posting = planted::impatient(posting, || UpstreamError::SessionLost);
        posting
    };
    #[cfg(feature = "planted")]
    if planted::has(Bug::DrainedIsDeaf) && !leg.upstream.is_configured(&leg.endpoint) {
        return Err(UpstreamError::NotMcp(StatusCode::GONE));
    }
    let mut answer = match post(leg.link(carried)).await {
        // The redirect is met again, and followed.
        Err(UpstreamError::RedirectedAfter(_))
            if Box::pin(is_safe(session, message, now)).await =>
        {
            Box::pin(post(leg.link(carried).safe())).await?
        }
        posted => posted?,
    };
    let recovery = &leg.upstream.server().recovery;
    if judge::wants_judging(&answer, recovery) {
        return Box::pin(judge::judge(answer, message, recovery))
            .await
            .map(Answered::Read);
    }
    let status = answer.status;
    if status == StatusCode::ACCEPTED {
        let why = "the server answered 202, which is no answer to a request";
        return Err(UpstreamError::OutcomeUnknown(why.into()));
    }
    if is_events(&answer) {
        return Ok(Answered::Arriving(answer, Passing::unseen()));
    }
    if !answer.is(media::JSON) {
        return Err(UpstreamError::NotMcp(status));
    }
    let id = message.id().unwrap_or_default();
    let own = match asked.is_renamed {
        true => renamed::original(id),
        false => None,
    };
    let holding = Holding {
        limit: asked.holds(),
        asked: id,
        own: own.as_deref(),
    };
    let ends_with_connection = answer.body.ends_with_connection();
    let body = match holding.hold(&mut answer.body).await {
        Ok(Held::Whole(body)) => body,
        Ok(Held::Begun(passing)) => {
            asked.lesson.miss(session);
            return Ok(Answered::Arriving(answer, passing));
        }
        Err(UpstreamError::Stream(StreamError::AnotherId)) => return Err(another_id(session)),
        Err(error) => return Err(error),
    };
    let prints = &recovery.fingerprints;
    let is_small = body.len() <= SMALL_ANSWER;
    if is_small && is_suspect(prints, status) && is_fingerprint(prints, status, &body) {
        return Err(UpstreamError::Fingerprint(status));
    }
    #[cfg(feature = "planted")]
    if planted::lacks_text(&body, message.id()) {
        return Err(another_id(session));
    }
    let body = match batch::is_batch(&body) {
        false if ends_with_connection && !is_readable(&body) => {
            return Err(StreamError::Cut.into());
        }
        false if !is_answer_to(&body, id) => return Err(another_id(session)),
        false => body,
        true => {
            let marked = array::marked(body.clone(), &rewrite(session, leg, asked))?;
            if !array::has_answer_to(&body, id) {
                return Err(another_id(session));
            }
            marked
        }
    };
    Ok(Answered::Read(Reply::Whole {
        status,
        content_type: answer.content_type().cloned(),
        body,
    }))
}

#[cold]
fn another_id(session: &Session) -> UpstreamError {
    let server = &session.upstream.name;
    tracing::warn!(session = %session.hash, %server, "answer under another id, not passed on");
    UpstreamError::AnotherId
}

fn rewrite(session: &Session, leg: &Leg, asked: &Asked) -> Rewrite {
    let id = asked.message.id().unwrap_or_default();
    let born = match renamed::original(id) {
        Some(original) if asked.is_renamed => Born::Request(original.into()),
        _ => Born::Request(id.into()),
    };
    let reserved = leg.upstream.reserved.clone();
    Rewrite::new(session.seal.clone(), leg.at, born, reserved)
}

fn is_events(answer: &Answer) -> bool {
    answer.status == StatusCode::OK && answer.is(media::EVENT_STREAM)
}

/// What the client gets: a reply, or events of which nothing has been read.
enum Finished {
    Reply(Reply),
    Events(Box<EventRelay>),
}

/// Makes of what came back what the client gets. It waits for nothing, so that a request's future does
/// not hold the answer, which is large.
fn finish(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    asked: &Asked,
    carried: &Carried,
    answered: Answered,
    overtime: Option<Overtime>,
) -> Finished {
    let (answer, passing) = match answered {
        Answered::Read(Reply::Whole {
            mut status,
            content_type,
            body,
        }) => {
            if status == StatusCode::NOT_FOUND {
                // The application's own, or a server's that has lost the session and says it
                // badly: only asking can tell. A client would take the status for a lost session.
                status = StatusCode::OK;
                mend_behind(session, leg, Cause::Unproven, carried);
            }
            let body = asked.restore(body);
            let rewrite = || rewrite(session, leg, asked);
            asked.lesson.take_whole(session, rewrite, &body);
            return Finished::Reply(Reply::Whole {
                status,
                content_type,
                body,
            });
        }
        Answered::Read(reply) => return Finished::Reply(reply),
        Answered::Arriving(answer, passing) => (answer, passing),
    };
    if is_events(&answer) {
        let events = EventRelay::new(answer.body, rewrite(session, leg, asked));
        let events = events
            .of(session, leg)
            .answering(asked.lesson)
            .suspecting(leg.upstream.server())
            .with_overtime(overtime);
        return Finished::Events(Box::new(events));
    }
    Finished::Reply(Reply::Stream {
        status: answer.status,
        content_type: answer.content_type().cloned(),
        relay: Relay::Frames(Box::new(FrameRelay::new(
            passing,
            answer.body,
            overtime,
            (session, leg),
        ))),
        // Part of it has been passed on, and nothing tells where it stood.
        rescue: None,
    })
}

/// Remembers what the server has accepted: now, or when its stream brings the answer.
async fn remembered(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    message: &Message,
    carried: &Carried,
    finished: Finished,
) -> Finished {
    let Some(memory) = Memory::of(message, carried) else {
        return finished;
    };
    match finished {
        Finished::Reply(Reply::Whole { ref body, .. }) if is_result(body) => {
            memory.remember(session, leg).await;
            finished
        }
        Finished::Events(mut events) => {
            events.remembers(memory);
            Finished::Events(events)
        }
        Finished::Reply(_) => finished,
    }
}

/// Sends what nobody answers: a notification, or the client's answer to a server's request. One
/// that meets a loss is taken all the same; what it was about is gone, or is said again by mending.
/// A server that does not take it in time holds up nothing that comes after it.
pub(crate) async fn notify(
    session: &Arc<Session>,
    message: &Message,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let limit = Overtime::of_notice(session);
    let telling = notify_whenever(session, message, body, carried, sent);
    let told = tokio::time::timeout(limit, telling).await;
    told.unwrap_or_else(|_| {
        let leg = session.leg();
        if leg.is_lost() {
            // Whoever comes next needs it.
            mend_behind(session, &leg, Cause::Lost, carried);
        }
        Err(UpstreamError::NotTaken(limit))
    })
}

async fn notify_whenever(
    session: &Arc<Session>,
    message: &Message,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let mut body = body;
    if let Some(span) = message.cancelled_request() {
        #[cfg(feature = "planted")]
        if planted::has(Bug::CancelForgotten) {
            return Ok(Reply::Accepted);
        }
        let id = message.text(span);
        session.calls.cancel(id);
        session.announce(|session| News::Cancelled(session, id.into()));
        if let Some(sent_as) = session.calls.sent_as(id) {
            body = message.splice(span, &sent_as);
        }
    }
    let leg = session.leg();
    let error = match tell(&leg, body.clone(), carried, sent.clone()).await {
        Ok(reply) => {
            session.remember(message).await;
            return Ok(reply);
        }
        Err(error) => error,
    };
    let cause = match outcome(&error).1 {
        Known::Alive => return Err(error),
        Known::Lost => Cause::Lost,
        Known::Unproven if matches!(error, UpstreamError::Declined(_)) => {
            match Box::pin(is_forgotten(session, &leg, carried)).await {
                true => Cause::Lost,
                false => return Err(error),
            }
        }
        Known::Unproven => Cause::Unproven,
    };
    if leg.at == LegRef::UNOPENED {
        // The server hears it when there is a server to hear it.
        session.remember(message).await;
        return Ok(Reply::Accepted);
    }
    let (is_for_any, may_be_heard_twice) = match message.method() {
        Some("notifications/initialized") => {
            session.remember(message).await;
            (false, true)
        }
        Some("notifications/roots/list_changed") => (true, true),
        // The client's answer, of which a server takes the first.
        None => (false, true),
        _ => (false, false),
    };
    if !may_be_heard_twice {
        mend_behind(session, &leg, cause, carried);
        return Ok(Reply::Accepted);
    }
    let mended = Box::pin(mend(session, &leg, cause, carried)).await?;
    match is_for_any || mended.at == leg.at {
        true => tell(&mended, body, carried, sent).await,
        // What it was about is gone, or was said again by mending.
        false => Ok(Reply::Accepted),
    }
}

async fn tell(
    leg: &Leg,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    if leg.is_lost() {
        return Err(UpstreamError::SessionLost);
    }
    let answer = leg.upstream.post(leg.link(carried), body, sent).await?;
    let recovery = &leg.upstream.server().recovery;
    if !answer.status.is_success() || is_suspect(&recovery.fingerprints, answer.status) {
        return Box::pin(judge::judge_notification(answer, recovery)).await;
    }
    answer.read_out().await;
    Ok(Reply::Accepted)
}

/// What a ping of our own showed.
pub(super) enum Pulse {
    Alive,
    Lost,
    /// It did not get there, or nobody answered well: for this reason, and with this wish to be
    /// left alone for a time.
    Unproven(Arc<str>, Option<Duration>),
}

/// Asks the upstream whether it still knows the session. The answer goes to nobody.
pub(super) async fn ping(leg: &Leg, carried: &Carried) -> Pulse {
    let id = renamed::own_id("ping");
    let ping = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
    let Ok(ping) = Message::parse(ping.into()) else {
        return Pulse::Alive;
    };
    let posted = leg
        .upstream
        .post(
            leg.link(carried).safe(),
            ping.raw().clone(),
            Sent::default(),
        )
        .await;
    let recovery = &leg.upstream.server().recovery;
    let mut asked_for = None;
    if let Ok(answer) = &posted {
        asked_for = retry_after(&answer.headers);
    }
    let judged = match posted {
        Ok(answer) if judge::wants_judging(&answer, recovery) => {
            judge::judge(answer, &ping, recovery).await
        }
        Ok(answer) => {
            return match judge::says_lost(answer, recovery).await {
                true => Pulse::Lost,
                false => Pulse::Alive,
            };
        }
        Err(error) => Err(error),
    };
    match judged {
        Ok(_) => Pulse::Alive,
        Err(UpstreamError::Declined(declined)) if declined.may_deny_session => Pulse::Lost,
        Err(error) => match outcome(&error) {
            (_, Known::Lost) => Pulse::Lost,
            (_, Known::Alive) => Pulse::Alive,
            (_, Known::Unproven) => Pulse::Unproven(error.to_string().into(), asked_for),
        },
    }
}

// === impl Reply ===

impl Reply {
    /// An upstream's answer read to its end, if it is one that a client can read.
    pub(crate) async fn whole(answer: Answer) -> Result<Self, UpstreamError> {
        if !answer.is(media::JSON) {
            return Err(UpstreamError::NotMcp(answer.status));
        }
        let (status, content_type) = (answer.status, answer.content_type().cloned());
        Ok(Self::Whole {
            status,
            content_type,
            body: read_limited(answer.body, MAX_HELD_ANSWER).await?,
        })
    }

    /// Whether it is one message, held whole, that answers something.
    pub(super) fn is_message(&self) -> bool {
        let Self::Whole { body, .. } = self else {
            return false;
        };
        Message::parse(body.clone()).is_ok_and(|message| message.kind() == Kind::Response)
    }

    /// The reply as far as it was read: what else a stream would bring is given up.
    pub(crate) fn into_held(self) -> Self {
        match self {
            Self::Stream {
                status,
                content_type,
                relay,
                ..
            } => Self::Whole {
                status,
                content_type,
                body: relay.into_held(),
            },
            whole => whole,
        }
    }

    /// A result (JSON text) of our own.
    pub(crate) fn result(request: &Message, result: &str) -> Self {
        let id = request.id().unwrap_or("null");
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        Self::Whole {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::JSON)),
            body: body.into(),
        }
    }

    /// A request that is not sent, and why.
    fn refusal(session: &Session, request: &Message, why: &Fault) -> Self {
        let reason = why.telling().reason;
        session.upstream.metrics.refused(reason);
        tracing::info!(reason, session = %session.hash, server = %session.upstream.name, "refused");
        Self::Whole {
            status: why.telling().status,
            content_type: Some(HeaderValue::from_static(media::JSON)),
            body: why.body(request.id()).into(),
        }
    }

    /// A stream of events, or one body of them if all have arrived.
    pub(crate) async fn events(
        mut events: Box<EventRelay>,
        rescue: impl FnOnce() -> Option<Box<Rescue>>,
    ) -> Self {
        match events.at_once().await {
            Some(body) => Self::Whole {
                status: StatusCode::OK,
                content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
                body,
            },
            None => Self::stream(events, rescue()),
        }
    }

    fn stream(events: Box<EventRelay>, rescue: Option<Box<Rescue>>) -> Self {
        Self::Stream {
            status: StatusCode::OK,
            content_type: Some(HeaderValue::from_static(media::EVENT_STREAM)),
            relay: Relay::Events(events),
            rescue,
        }
    }
}
