//! Opens the upstream's side of a stream that a client asked for with a GET, and recovers its session if that is broken.

use std::sync::Arc;

use bytes::Bytes;

use crate::exchange::listen::{lost, open};
use crate::exchange::recovery::{Cause, recover};
use crate::exchange::stream::Source;
use crate::leg::marks::StreamOrigin;
use crate::proof::SessionState;
use crate::session::Session;
use crate::session::recovery::RecoveryError;
use crate::upstream::budget::Budget;
use crate::upstream::{Carried, UpstreamError};

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
