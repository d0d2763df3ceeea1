//! One message over a leg, and what comes back.

use std::sync::Arc;

use bowline_wire::message::Message;
use bowline_wire::{media, version};
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use http_body::Body as _;

use super::again::Again;
use super::mend::{Cause, mend, mend_behind};
use super::outcome::{Known, Ran, outcome};
use super::overtime::Overtime;
use super::relay::{EventRelay, FrameRelay, Relay};
use super::rewrite::{Rewrite, again_id};
use super::{Leg, Rescue, array, judge};
use crate::body::{Sent, read_limited};
use crate::session::{Born, Session};
use crate::upstream::{Answer, Carried, UpstreamError};

/// The largest answer that is held whole where it must be looked into.
pub(crate) const MAX_HELD_ANSWER: usize = 8 * 1024 * 1024;

/// Answers of a known length up to this are passed on whole: cheaper than a stream of one frame.
const SMALL_ANSWER: u64 = 64 * 1024;

/// The id cannot be a client's by chance, and if one chose it, the answers do not meet: each goes
/// back on the connection of its own request.
const PING: &[u8] = br#"{"jsonrpc":"2.0","id":"bowline/ping","method":"ping"}"#;
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
pub(crate) async fn request(
    session: Arc<Session>,
    message: Message,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let asked = Asked::first(&message);
    send_until_answered(&session, session.leg(), message, asked, carried, sent).await
}

/// Sends a request again whose answer broke off on the leg `old`.
pub(super) async fn request_again(
    session: &Arc<Session>,
    old: &Arc<Leg>,
    leg: Arc<Leg>,
    message: Message,
    carried: &Carried,
) -> Result<Reply, UpstreamError> {
    let mut asked = Asked {
        goes_on: true,
        ..Asked::first(&message)
    };
    if old.at == leg.at {
        asked = asked.again(&message);
    }
    send_until_answered(session, leg, message, asked, carried, Sent::default()).await
}

async fn send_until_answered(
    session: &Arc<Session>,
    mut leg: Arc<Leg>,
    message: Message,
    mut asked: Asked,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let call = session.calls.begin(message.id().unwrap_or_default());
    let mut overtime = Overtime::of(session, &message);
    let mut again = Again::default();
    loop {
        let answering = answer(session, &leg, &asked, carried, sent.clone());
        let answered = match &mut overtime {
            None => answering.await,
            Some(patience) => tokio::select! {
                biased;
                answered = answering => answered,
                error = std::future::poll_fn(|cx| patience.poll(cx)) => return Err(error),
            },
        };
        let error = match answered {
            Ok(answered) => {
                session.believed.note(&message);
                let rescue = || Box::new(Rescue::request(session, &leg, &message, carried));
                return finish(session, &leg, &asked, answered, overtime, rescue).await;
            }
            Err(error) => error,
        };
        // Boxed, like everything that is rare: every request's future is as large as its largest part.
        let after = again.after(session, &leg, &message, (&call, &sent), error);
        let mended = Box::pin(after).await?;
        if mended.at == leg.at {
            // The upstream may still be at work on the first: two requests, two ids.
            asked = asked.again(&message);
        }
        leg = mended;
    }
}

/// A request as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) message: Message,
    /// The client's own id, where the one that is sent is not.
    original: Option<Box<str>>,
    /// The client has seen the beginning of an answer: what it knows already is not told again, so
    /// nothing of this one is read before that is known.
    goes_on: bool,
}

impl Asked {
    fn first(message: &Message) -> Self {
        Self {
            message: message.clone(),
            original: None,
            goes_on: false,
        }
    }

    /// The same request under an id of our own.
    fn again(&self, original: &Message) -> Self {
        let (Some(span), Some(id)) = (original.id_span(), original.id()) else {
            return self.clone();
        };
        let renamed = original.splice(span, &again_id(id));
        match Message::parse(renamed) {
            Ok(message) => Self {
                message,
                original: Some(id.into()),
                goes_on: self.goes_on,
            },
            Err(_) => self.clone(),
        }
    }

    /// The id that the client knows, as JSON text.
    fn id(&self) -> &str {
        self.original
            .as_deref()
            .or(self.message.id())
            .unwrap_or_default()
    }

    /// A whole answer under the client's own id.
    fn restore(&self, body: Bytes) -> Bytes {
        let Some(original) = &self.original else {
            return body;
        };
        match Message::parse(body.clone()) {
            Ok(answer) => match answer.id_span() {
                Some(span) if answer.id() == self.message.id() => answer.splice(span, original),
                _ => body,
            },
            Err(_) => body,
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
    leg: &Leg,
    asked: &Asked,
    carried: &Carried,
    sent: Sent,
) -> Result<Answered, UpstreamError> {
    let message = &asked.message;
    let answer = leg
        .upstream
        .post(leg.link(carried), message.raw().clone(), sent)
        .await?;
    let recovery = &leg.upstream.server().recovery;
    let is_suspect = recovery
        .fingerprints
        .iter()
        .any(|print| print.status == answer.status);
    if is_suspect || judge::wants_judging(&answer) {
        return Box::pin(judge::judge(answer, message, recovery))
            .await
            .map(Answered::Read);
    }
    let length = answer.body.size_hint().exact();
    let is_small = length.is_some_and(|length| length <= SMALL_ANSWER);
    let is_json = answer.status == StatusCode::OK && answer.is(media::JSON);
    if is_json && version::has_batches(leg.version()) {
        return Box::pin(array::look_into(answer, &rewrite(session, leg, asked))).await;
    }
    if is_json && (is_small || asked.original.is_some()) {
        let reply = Reply::whole(answer).await?;
        return Ok(Answered::Read(reply));
    }
    Ok(Answered::Arriving(answer, None))
}

fn rewrite(session: &Session, leg: &Leg, asked: &Asked) -> Rewrite {
    let born = Born::Request(asked.id().into());
    Rewrite::new(session.seal.clone(), leg.at, born)
}

async fn finish(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    asked: &Asked,
    answered: Answered,
    overtime: Option<Overtime>,
    rescue: impl FnOnce() -> Box<Rescue>,
) -> Result<Reply, UpstreamError> {
    let lists_tools = asked.message.method() == Some("tools/list");
    let (answer, first) = match answered {
        Answered::Read(Reply::Whole {
            status,
            content_type,
            body,
        }) => {
            let body = asked.restore(body);
            if lists_tools && let Ok(listing) = Message::parse(body.clone()) {
                learn(session, &listing);
            }
            return Ok(Reply::Whole {
                status,
                content_type,
                body,
            });
        }
        Answered::Read(reply) => return Ok(reply),
        Answered::Arriving(answer, first) => (answer, first),
    };
    if answer.status == StatusCode::ACCEPTED {
        return Ok(Reply::Accepted);
    }
    if answer.status == StatusCode::OK && answer.is(media::EVENT_STREAM) {
        let events = EventRelay::new(answer.body, rewrite(session, leg, asked));
        let events = events
            .of(session, leg)
            .answering(lists_tools)
            .with_overtime(overtime);
        if asked.goes_on {
            return Ok(Reply::stream(Box::new(events), Some(rescue())));
        }
        return Ok(Reply::events(events, || Some(rescue())).await);
    }
    if !answer.is(media::JSON) {
        return Err(UpstreamError::NotMcp(answer.status));
    }
    Ok(Reply::Stream {
        status: answer.status,
        content_type: answer.content_type().cloned(),
        relay: Relay::Frames(Box::new(FrameRelay::new(first, answer.body, overtime, leg))),
        // Part of it has been passed on, and nothing tells where it stood.
        rescue: None,
    })
}

/// Takes what a listing says of the server's tools.
pub(super) fn learn(session: &Session, listing: &Message) {
    if let Some(result) = listing.result() {
        session.upstream.tools.learn(&session.caller, result);
    }
}

/// Sends what nobody answers: a notification, or the client's answer to a server's request. One
/// that meets a loss is taken all the same; what it was about is gone, or is said again by mending.
pub(crate) async fn notify(
    session: Arc<Session>,
    message: &Message,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    if let Some(span) = message.cancelled_request() {
        session.calls.cancel(message.text(span));
    }
    let leg = session.leg();
    let error = match tell(&leg, body.clone(), carried, sent.clone()).await {
        Ok(reply) => {
            session.believed.note(message);
            return Ok(reply);
        }
        Err(error) => error,
    };
    let (ran, known) = outcome(&error);
    let cause = match known {
        Known::Alive => return Err(error),
        Known::Lost => Cause::Lost,
        Known::Unproven => Cause::Unproven,
    };
    match message.method() {
        Some("notifications/initialized") => {
            session.believed.note(message);
            let mended = Box::pin(mend(&session, &leg, cause)).await?;
            if mended.at == leg.at && ran == Ran::No {
                return tell(&mended, body, carried, sent).await;
            }
        }
        Some("notifications/roots/list_changed") => {
            let mended = Box::pin(mend(&session, &leg, cause)).await?;
            return tell(&mended, body, carried, sent).await;
        }
        _ => mend_behind(&session, &leg, cause),
    }
    Ok(Reply::Accepted)
}

async fn tell(
    leg: &Leg,
    body: Bytes,
    carried: &Carried,
    sent: Sent,
) -> Result<Reply, UpstreamError> {
    let answer = leg.upstream.post(leg.link(carried), body, sent).await?;
    if answer.denies_session() {
        return Err(UpstreamError::SessionLost);
    }
    if !answer.status.is_success() {
        return Box::pin(judge::judge_notification(answer)).await;
    }
    answer.read_out().await;
    Ok(Reply::Accepted)
}

/// What a ping of our own showed.
pub(super) enum Pulse {
    Alive,
    Lost,
    /// It did not get there, or nobody answered well: for this reason.
    Unproven(Arc<str>),
}

/// Asks the upstream whether it still knows the session. The answer goes to nobody.
pub(super) async fn ping(leg: &Leg, carried: &Carried) -> Pulse {
    let ping = Message::parse(Bytes::from_static(PING));
    let Ok(ping) = ping else {
        return Pulse::Alive;
    };
    let posted = leg
        .upstream
        .post(leg.link(carried), ping.raw().clone(), Sent::default())
        .await;
    let judged = match posted {
        Ok(answer) if judge::wants_judging(&answer) => {
            judge::judge(answer, &ping, &leg.upstream.server().recovery).await
        }
        Ok(answer) => {
            answer.read_out().await;
            return Pulse::Alive;
        }
        Err(error) => Err(error),
    };
    match judged {
        Ok(_) => Pulse::Alive,
        Err(error) => match outcome(&error) {
            (_, Known::Lost) => Pulse::Lost,
            (_, Known::Alive) => Pulse::Alive,
            (_, Known::Unproven) => Pulse::Unproven(error.to_string().into()),
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
                ..
            } => Self::Whole {
                status,
                content_type,
                body: relay.into_held(),
            },
            whole => whole,
        }
    }

    /// A stream of events, or one body of them if all have arrived.
    pub(crate) async fn events(
        events: EventRelay,
        rescue: impl FnOnce() -> Option<Box<Rescue>>,
    ) -> Self {
        let mut events = Box::new(events);
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
