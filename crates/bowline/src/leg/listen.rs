//! The stream of a GET: what the server says unasked, and streams that are resumed.

use std::sync::Arc;
use std::time::Duration;

use bowline_wire::media;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;

use super::relay::{EventRelay, Relay};
use super::rewrite::Rewrite;
use super::send::is_alive;
use crate::session::{Born, Session, Source};
use crate::upstream::{Carried, UpstreamError};

/// How long an upstream may go on refusing a stream because it has not noticed yet that the last
/// one was closed.
const CONFLICT_BUDGET: Duration = Duration::from_secs(5);
const FIRST_CONFLICT_DELAY: Duration = Duration::from_millis(20);

/// Opens the upstream's side of a GET for the stream `born`, after the event `last`.
///
/// A standalone stream is served even over an upstream that offers none; it is silent then.
pub(crate) async fn listen(
    session: Arc<Session>,
    born: Born,
    last: Option<HeaderValue>,
    carried: Carried,
) -> Result<Source, UpstreamError> {
    let leg = &session.leg;
    let started = Instant::now();
    let mut delay = FIRST_CONFLICT_DELAY;
    let answer = loop {
        let answer = leg.upstream.get(leg.link(&carried), last.as_ref()).await?;
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
    // A server without a route for GET says 404 as one does that lost the session.
    if answer.denies_session() && !is_alive(&session).await {
        return Err(UpstreamError::SessionLost);
    }
    let offers_none = answer.status.is_client_error() && answer.status != StatusCode::CONFLICT;
    if born == Born::Standalone && offers_none {
        return Ok(Source::Silent);
    }
    Err(UpstreamError::NotOpened(answer.status))
}
