//! Opens the upstream's side of a stream that a client asked for with a GET, once: what the server sends on its own, or
//! the rest of an earlier stream.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::message::RawId;
use bowline_wire::sse::Event;
use bytes::Bytes;
use tokio::time::Instant;

use crate::exchange::ping::ping;
use crate::exchange::stream::Source;
use crate::exchange::stream::relay::EventRelay;
use crate::fault::Fault;
use crate::leg::Leg;
use crate::leg::marks::StreamOrigin;
use crate::leg::rewrite::Rewrite;
use crate::session::Session;
use crate::upstream::budget::{Budget, errand};
use crate::upstream::{Carried, Listening, UpstreamError};

/// The first delay before a retry when an upstream answers 409: it has not noticed yet that the last stream
/// was closed.
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// The rest of a stream that answered the request with this id, if its generation is lost: the
/// outcome of that request is unknown.
pub(crate) fn lost(leg: &Leg, id: RawId<'_>) -> Source {
    let why = UpstreamError::OutcomeUnknown("the server lost the session".into());
    let body = Fault::on(leg, why).body(Some(id));
    Source::last(Event::of_message(body))
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
                return Ok(Source::Events(Box::new(events)));
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
