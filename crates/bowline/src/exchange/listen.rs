//! The stream of a GET: what the server says unasked, and streams that are resumed.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::sse::event_of;
use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::Exchange;
use crate::exchange::detach::Abandoned;
use crate::exchange::ping::ping;
use crate::exchange::recovery::{Cause, recover};
use crate::exchange::stream::outlet::Outlet;
use crate::exchange::stream::relay::{EventRelay, Relay};
use crate::exchange::stream::rescue::Rescue;
use crate::exchange::stream::{LiveStream, Source};
use crate::fault::Fault;
use crate::leg::Leg;
use crate::leg::marks::Born;
use crate::leg::rewrite::Rewrite;
use crate::session::Session;
use crate::session::recovery::RecoveryError;
use crate::upstream::budget::{Budget, errand, moment};
use crate::upstream::{Carried, Listening, Pulse, SessionState, UpstreamError};

/// How soon a stream is asked for again that an upstream refuses because it has not noticed yet that
/// the last one was closed.
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// What a client's `Last-Event-ID` leads to.
enum Resumed {
    /// A stream, after one of the server's own event ids.
    At(Born, Option<Bytes>),
    /// The answer to this request (JSON text) went with the generation that it was asked of.
    Lost(Box<str>),
}

impl Exchange {
    /// Opens a stream to the client: of what the server says unasked or, after the event `last`, one that it
    /// had before.
    pub(crate) async fn listen(self, last: Option<&[u8]>) -> Result<Outlet, Fault> {
        let session = Arc::clone(self.in_use.session());
        let place = session.stream_place().map_err(Fault::TooManyStreams)?;
        let (born, source) = match last.map(|mark| resumed(&session, mark)) {
            None => {
                let carried = self.carried.clone();
                let opening = listen(Arc::clone(&session), Born::Standalone, None, carried);
                (Born::Standalone, Source::opening(opening))
            }
            Some(None) => return Err(Fault::LastEventId),
            Some(Some(Resumed::At(born, last))) => {
                let carried = self.carried.clone();
                let opening = listen(Arc::clone(&session), born.clone(), last, carried);
                (born, Source::opening(opening))
            }
            Some(Some(Resumed::Lost(id))) => {
                let told = lost(&session.leg(), &id);
                (Born::Request(id), told)
            }
        };
        let rescue = (born == Born::Standalone)
            .then(|| Box::new(Rescue::standalone(&session, self.carried.clone())));
        // The older stream is closed before the newer is asked for, so that the server sees one.
        let stream = Arc::new(LiveStream::new(source, rescue));
        let is_attached = match born {
            Born::Standalone => session.attach_listener(&stream).await,
            Born::Request(_) => session.attach(born, &stream),
        };
        if !is_attached {
            return Err(Fault::UnknownSession);
        }
        let abandoned = Abandoned::of(&self.registry, &session);
        let outlet = Outlet::events(
            Arc::clone(&stream),
            self.in_use.clone(),
            abandoned,
            Some(place),
        );
        // Long enough to tell the client of a lost session by a status, short enough for servers that
        // answer with their first event.
        let grace = moment(&session.upstream.config());
        if let Ok(Err(error)) = tokio::time::timeout(grace, stream.opened()).await {
            return Err(self.failed(error));
        }
        Ok(outlet)
    }
}

fn resumed(session: &Session, mark: &[u8]) -> Option<Resumed> {
    let mark = session.seal.open_event(mark)?;
    if mark.leg == session.leg().generation {
        // What is no header's value could not be sent back.
        if !mark
            .id
            .iter()
            .all(|byte| matches!(byte, b'\t' | 32..=126 | 128..))
        {
            return None;
        }
        return Some(Resumed::At(mark.born, Some(mark.id.into_vec().into())));
    }
    Some(match mark.born {
        Born::Standalone => Resumed::At(Born::Standalone, None),
        Born::Request(id) => Resumed::Lost(id),
    })
}

/// Opens the upstream's side of a GET for the stream `born`, after the event `last`; where that
/// meets a broken session, it is recovered first.
///
/// A standalone stream is served even over an upstream that offers none; it is silent then.
pub(crate) async fn listen(
    session: Arc<Session>,
    born: Born,
    last: Option<Bytes>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let budget = Budget::of(&session.upstream);
    listen_within(session, born, last, carried, budget).await
}

/// The same with what is left of a budget.
pub(crate) async fn listen_within(
    session: Arc<Session>,
    born: Born,
    mut last: Option<Bytes>,
    carried: Carried,
    mut budget: Budget,
) -> Result<Source, UpstreamError> {
    let mut leg = session.leg();
    let mut refused = false;
    loop {
        let error = match open(&session, &leg, &born, last.as_ref(), &carried).await {
            Ok(source) => return Ok(source),
            Err(UpstreamError::SignIn(_)) if born == Born::Standalone => return Ok(Source::Silent),
            // A balancer without a server says this for a moment, or the server no longer has the event.
            Err(UpstreamError::NotListened(why)) if born == Born::Standalone && why.may_pass() => {
                wait(&mut budget).await?;
                let current = session.leg();
                if refused || current.generation != leg.generation {
                    last = None;
                }
                (refused, leg) = (true, current);
                continue;
            }
            Err(error) => error,
        };
        let cause = match error.proof().session {
            SessionState::Alive => return Err(error),
            SessionState::Lost => Cause::Lost,
            SessionState::Unproven => Cause::Unproven,
        };
        let recovered = match recover(&session, &leg, cause, &carried).await {
            // There is nothing to hear yet; whoever opens the leg opens this, too.
            Err(RecoveryError::SignIn(_)) if born == Born::Standalone => return Ok(Source::Silent),
            recovered => recovered?,
        };
        if recovered.generation != leg.generation {
            // An event id means something to the generation that issued it, and to no other.
            last = None;
            if let Born::Request(id) = &born {
                return Ok(lost(&recovered, id));
            }
        }
        leg = recovered;
        wait(&mut budget).await?;
    }
}

async fn wait(budget: &mut Budget) -> Result<(), UpstreamError> {
    let why = "its stream broke off again and again";
    match budget.next_attempt(None).await {
        true => Ok(()),
        false => Err(UpstreamError::NotRecovered(why.into())),
    }
}

/// What is left of a stream that answered the request with this id (JSON text), if its generation
/// is gone: nobody knows what became of that request.
pub(crate) fn lost(leg: &Leg, id: &str) -> Source {
    let why = UpstreamError::OutcomeUnknown("its session was lost meanwhile".into());
    let told = Fault::on(leg, why).body(Some(id));
    Source::Last(event_of(told.as_bytes()))
}

pub(crate) async fn open(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    born: &Born,
    last: Option<&Bytes>,
    carried: &Carried,
) -> Result<Source, UpstreamError> {
    if leg.is_lost() {
        return Err(UpstreamError::SessionLost);
    }
    let started = Instant::now();
    let mut delay = FIRST_CONFLICT_DELAY;
    let patience = errand(&leg.upstream.config().recovery);
    let (why, may_deny_session) = loop {
        match leg.upstream.listen(leg.link(carried), last).await? {
            Listening::Events(body) => {
                if *born == Born::Standalone {
                    leg.upstream.note_stream();
                }
                let reserved = leg.upstream.reserved.clone();
                let rewrite =
                    Rewrite::new(session.seal.clone(), leg.generation, born.clone(), reserved);
                let events = EventRelay::new(body, rewrite)
                    .of(session, leg)
                    .after(last.cloned());
                return Ok(Source::Relay(Relay::Events(Box::new(events))));
            }
            Listening::Refused { why, .. }
                if why.is_conflict() && started.elapsed() + delay <= patience => {}
            Listening::Refused {
                why,
                may_deny_session,
            } => break (why, may_deny_session),
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
    };
    if may_deny_session {
        let limit = Budget::of(&session.upstream).patient_attempt();
        let carried = session.carried(carried);
        let pinged = tokio::time::timeout(limit, ping(leg, &carried)).await;
        if matches!(pinged, Ok(Pulse::Lost)) {
            return Err(UpstreamError::SessionLost);
        }
    }
    if why.is_failure() {
        return Err(UpstreamError::not_mcp(why));
    }
    if *born == Born::Standalone && why.has_none(leg.upstream.opens_streams()) {
        return Ok(Source::Silent);
    }
    Err(UpstreamError::NotListened(why))
}
