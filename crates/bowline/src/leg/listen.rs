//! The stream of a GET: what the server says unasked, and streams that are resumed.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::relay::{EventRelay, Relay};
use super::rewrite::Rewrite;
use crate::session::{Born, EventMark, Session, Source};
use crate::upstream::{Carried, UpstreamError};

/// How long an upstream may go on refusing a stream because it has not noticed yet that the last
/// one was closed.
const CONFLICT_BUDGET: Duration = Duration::from_secs(5);
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// Opens the upstream's side of a GET, from where `resume` says.
///
/// A standalone stream is served even over an upstream that offers none; it is silent then.
pub(crate) async fn listen(
    session: Arc<Session>,
    resume: Option<EventMark>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let (born, last_event_id) = match resume {
        Some(mark) => (mark.born, Some(mark.id)),
        None => (Born::Standalone, None),
    };
    let last_event_id = last_event_id.and_then(|id| HeaderValue::from_bytes(&id).ok());
    let leg = &session.leg;
    let started = Instant::now();
    let mut delay = FIRST_CONFLICT_DELAY;
    let answer = loop {
        let answer = leg
            .upstream
            .get(leg.link(), &carried, last_event_id.as_ref())
            .await?;
        if answer.denies_session() {
            return Err(UpstreamError::SessionLost);
        }
        if answer.status != StatusCode::CONFLICT || started.elapsed() + delay > CONFLICT_BUDGET {
            break answer;
        }
        tokio::time::sleep(delay).await;
        delay *= 2;
    };
    if answer.status == StatusCode::OK && answer.is(media::EVENT_STREAM) {
        let rewrite = Rewrite::new(session.seal.clone(), leg.at, born);
        let events = EventRelay::new(answer.body, rewrite);
        return Ok(Source::Relay(Box::new(Relay::Events(events))));
    }
    let offers_none = answer.status.is_client_error() && answer.status != StatusCode::CONFLICT;
    if born == Born::Standalone && offers_none {
        return Ok(Source::Silent);
    }
    Err(UpstreamError::NotMcp(answer.status))
}
