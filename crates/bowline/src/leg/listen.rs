//! The stream of a GET: what the server says unasked, and streams that are resumed.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::Leg;
use super::budget::{Budget, errand};
use super::mend::{Cause, NotMended, mend};
use super::outcome::{Known, outcome};
use super::relay::{EventRelay, Relay};
use super::rewrite::Rewrite;
use super::send::{Pulse, ping};
use crate::session::{Born, Session, Source};
use crate::upstream::{Carried, UpstreamError, is_suspect};

/// How soon a stream is asked for again that an upstream refuses because it has not noticed yet that
/// the last one was closed.
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// Opens the upstream's side of a GET for the stream `born`, after the event `last`; where that
/// meets a broken session, it is mended first.
///
/// A standalone stream is served even over an upstream that offers none; it is silent then.
pub(crate) async fn listen(
    session: Arc<Session>,
    born: Born,
    last: Option<HeaderValue>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let budget = Budget::of(&session);
    listen_within(session, born, last, carried, budget).await
}

/// The same with what is left of a budget.
pub(super) async fn listen_within(
    session: Arc<Session>,
    born: Born,
    mut last: Option<HeaderValue>,
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
            Err(UpstreamError::NotListened(status))
                if born == Born::Standalone && may_pass(status) =>
            {
                wait(&mut budget).await?;
                let current = session.leg();
                if refused || current.at != leg.at {
                    last = None;
                }
                (refused, leg) = (true, current);
                continue;
            }
            Err(error) => error,
        };
        let cause = match outcome(&error).1 {
            Known::Alive => return Err(error),
            Known::Lost => Cause::Lost,
            Known::Unproven => Cause::Unproven,
        };
        let mended = match mend(&session, &leg, cause, &carried).await {
            // There is nothing to hear yet; whoever opens the leg opens this, too.
            Err(NotMended::SignIn(_)) if born == Born::Standalone => return Ok(Source::Silent),
            mended => mended?,
        };
        if mended.at != leg.at {
            // An event id means something to the generation that issued it, and to no other.
            last = None;
            if let Born::Request(id) = &born {
                return Ok(lost(&mended, id));
            }
        }
        leg = mended;
        wait(&mut budget).await?;
    }
}

/// Whether a GET that was refused with this may be let in later.
fn may_pass(status: StatusCode) -> bool {
    status.is_client_error() && status != StatusCode::CONFLICT
}

async fn wait(budget: &mut Budget) -> Result<(), UpstreamError> {
    let why = "its stream broke off again and again";
    match budget.next_attempt(None).await {
        true => Ok(()),
        false => Err(UpstreamError::NotMended(why.into())),
    }
}

/// What is left of a stream that answered the request with this id (JSON text), if its generation
/// is gone: nobody knows what became of that request.
pub(crate) fn lost(leg: &Leg, id: &str) -> Source {
    let why = UpstreamError::OutcomeUnknown("its session was lost meanwhile".into());
    let told = leg.fault(why).body(Some(id));
    Source::Last(format!("event: message\ndata: {told}\n\n").into())
}

pub(super) async fn open(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    born: &Born,
    last: Option<&HeaderValue>,
    carried: &Carried,
) -> Result<Source, UpstreamError> {
    if leg.is_lost() {
        return Err(UpstreamError::SessionLost);
    }
    let started = Instant::now();
    let mut delay = FIRST_CONFLICT_DELAY;
    let server = leg.upstream.server();
    let patience = errand(&server.recovery);
    let answer = loop {
        let answer = leg.upstream.get(leg.link(carried), last).await?;
        if answer.status != StatusCode::CONFLICT || started.elapsed() + delay > patience {
            break answer;
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
    };
    if answer.status == StatusCode::OK && answer.is(media::EVENT_STREAM) {
        if *born == Born::Standalone {
            leg.upstream.note_stream();
        }
        let reserved = leg.upstream.reserved.clone();
        let rewrite = Rewrite::new(session.seal.clone(), leg.at, born.clone(), reserved);
        let last = last.map(|last| Bytes::copy_from_slice(last.as_bytes()));
        let events = EventRelay::new(answer.body, rewrite)
            .of(session, leg)
            .after(last);
        return Ok(Source::Relay(Relay::Events(Box::new(events))));
    }
    let status = answer.status;
    let may_be_lost = matches!(
        status,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST | StatusCode::GONE
    ) || is_suspect(&server.recovery.fingerprints, status);
    if may_be_lost {
        let limit = Budget::of(session).patient_attempt();
        let carried = session.carried(carried);
        let pinged = tokio::time::timeout(limit, ping(leg, &carried)).await;
        if matches!(pinged, Ok(Pulse::Lost)) {
            return Err(UpstreamError::SessionLost);
        }
    }
    if status.is_server_error() {
        return Err(UpstreamError::NotMcp(status));
    }
    // A server without a route for GET says 404 as one does that lost the session.
    let is_refused = status.is_success() || may_pass(status);
    let has_none =
        status == StatusCode::METHOD_NOT_ALLOWED || is_refused && !leg.upstream.opens_streams();
    if has_none && *born == Born::Standalone {
        return Ok(Source::Silent);
    }
    Err(UpstreamError::NotListened(status))
}
