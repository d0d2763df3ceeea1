//! The stream of a GET: messages that the server sends on its own, and resumed streams.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::message::{RawId, RawIdBuf};
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
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::Rewrite;
use crate::proof::SessionState;
use crate::session::Session;
use crate::session::recovery::RecoveryError;
use crate::upstream::budget::{Budget, errand, moment};
use crate::upstream::{Carried, Listening, UpstreamError};

/// The first delay before a retry when an upstream answers 409: it has not noticed yet that the last stream
/// was closed.
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// What a client's `Last-Event-ID` refers to.
enum Resumed {
    /// A stream, after one of the server's own event ids.
    At(StreamOrigin, Option<Bytes>),
    /// The response to this request was lost with the generation that the request was sent to.
    Lost(RawIdBuf),
}

impl Exchange {
    /// Opens a stream to the client: the standalone stream or, after the event `last`, the rest of an earlier
    /// stream.
    pub(crate) async fn listen(self, last: Option<&[u8]>) -> Result<Outlet, Fault> {
        let session = Arc::clone(self.in_use.session());
        let place = session.stream_place().map_err(Fault::TooManyStreams)?;
        let (origin, source) = match last.map(|mark| resumed(&session, mark)) {
            None => {
                let carried = self.carried.clone();
                let opening = listen(
                    Arc::clone(&session),
                    StreamOrigin::Standalone,
                    None,
                    carried,
                );
                (StreamOrigin::Standalone, Source::opening(opening))
            }
            Some(None) => return Err(Fault::LastEventId),
            Some(Some(Resumed::At(origin, last))) => {
                let carried = self.carried.clone();
                let opening = listen(Arc::clone(&session), origin.clone(), last, carried);
                (origin, Source::opening(opening))
            }
            Some(Some(Resumed::Lost(id))) => {
                let source = lost(&session.leg(), id.as_id());
                (StreamOrigin::Request(id), source)
            }
        };
        let rescue = (origin == StreamOrigin::Standalone)
            .then(|| Box::new(Rescue::standalone(&session, self.carried.clone())));
        // The older stream is closed first, so that the server sees only one at a time.
        let stream = Arc::new(LiveStream::new(source, rescue));
        let is_attached = match origin {
            StreamOrigin::Standalone => session.attach_listener(&stream).await,
            StreamOrigin::Request(_) => session.replace(origin, &stream),
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
        // Long enough to report a lost session with an HTTP status, short enough for servers that send no
        // headers before their first event.
        let grace = moment(&session.upstream.config());
        if let Ok(Err(error)) = tokio::time::timeout(grace, stream.opened()).await {
            return Err(self.fail(error));
        }
        Ok(outlet)
    }
}

fn resumed(session: &Session, mark: &[u8]) -> Option<Resumed> {
    let mark = session.seal.open_event(mark)?;
    if mark.leg == session.leg().generation {
        // An event id that is not a valid header value cannot be sent to the server.
        if !mark
            .id
            .iter()
            .all(|byte| matches!(byte, b'\t' | 32..=126 | 128..))
        {
            return None;
        }
        return Some(Resumed::At(mark.origin, Some(mark.id.into_vec().into())));
    }
    Some(match mark.origin {
        StreamOrigin::Standalone => Resumed::At(StreamOrigin::Standalone, None),
        StreamOrigin::Request(id) => Resumed::Lost(id),
    })
}

/// Opens the upstream's side of a GET for the stream `origin`, after the event `last`. If the session is
/// broken, it is recovered first.
///
/// A standalone stream is served even if the upstream offers none; then it stays silent.
pub(crate) async fn listen(
    session: Arc<Session>,
    origin: StreamOrigin,
    last: Option<Bytes>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let budget = Budget::of(&session.upstream);
    listen_within(session, origin, last, carried, budget).await
}

/// The same with the rest of a budget.
pub(crate) async fn listen_within(
    session: Arc<Session>,
    origin: StreamOrigin,
    mut last: Option<Bytes>,
    carried: Carried,
    mut budget: Budget,
) -> Result<Source, UpstreamError> {
    let mut leg = session.leg();
    let mut refused = false;
    loop {
        let error = match open(&session, &leg, &origin, last.as_ref(), &carried).await {
            Ok(source) => return Ok(source),
            Err(UpstreamError::SignIn(_)) if origin == StreamOrigin::Standalone => {
                return Ok(Source::Silent);
            }
            // A load balancer without a server answers this for a moment, or the server no longer has the
            // event.
            Err(UpstreamError::NotListened(why))
                if origin == StreamOrigin::Standalone && why.may_pass() =>
            {
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
            // The server can send nothing yet. The request that opens the leg restarts this stream.
            Err(RecoveryError::SignIn(_)) if origin == StreamOrigin::Standalone => {
                return Ok(Source::Silent);
            }
            recovered => recovered?,
        };
        if recovered.generation != leg.generation {
            // An event id is valid only in the generation that issued it.
            last = None;
            if let StreamOrigin::Request(id) = &origin {
                return Ok(lost(&recovered, id.as_id()));
            }
        }
        leg = recovered;
        wait(&mut budget).await?;
    }
}

async fn wait(budget: &mut Budget) -> Result<(), UpstreamError> {
    let why = "its stream broke repeatedly";
    match budget.next_attempt(None).await {
        true => Ok(()),
        false => Err(UpstreamError::NotRecovered(why.into())),
    }
}

/// The rest of a stream that answered the request with this id, if its generation is lost: the
/// outcome of that request is unknown.
pub(crate) fn lost(leg: &Leg, id: RawId<'_>) -> Source {
    let why = UpstreamError::OutcomeUnknown("the server lost the session".into());
    let body = Fault::on(leg, why).body(Some(id));
    Source::Last(event_of(body.as_bytes()))
}

pub(crate) async fn open(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    origin: &StreamOrigin,
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
            Listening::Events(source) => {
                if *origin == StreamOrigin::Standalone {
                    leg.upstream.note_stream();
                }
                let reserved = leg.upstream.reserved.clone();
                let rewrite = Rewrite::new(
                    session.seal.clone(),
                    leg.generation,
                    origin.clone(),
                    reserved,
                );
                let events = EventRelay::new(source, rewrite)
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
        if pinged.is_ok_and(|pulse| pulse.confirms_loss()) {
            return Err(UpstreamError::SessionLost);
        }
    }
    if why.is_failure() {
        return Err(UpstreamError::not_mcp(why));
    }
    if *origin == StreamOrigin::Standalone && why.has_none(leg.upstream.opens_streams()) {
        return Ok(Source::Silent);
    }
    Err(UpstreamError::NotListened(why))
}
