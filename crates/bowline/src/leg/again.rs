//! A request that failed: whether it goes again, and on which leg.

use std::sync::Arc;

use bowline_wire::message::Message;

use super::Leg;
use super::budget::{Budget, until};
use super::mend::{Cause, mend, mend_behind};
use super::outcome::{Known, Ran, outcome};
use super::replay::{self, MayRepeat};
use super::send::{Pulse, ping};
use crate::body::Sent;
use crate::session::{Call, Session};
use crate::upstream::{Carried, Epoch, UpstreamError};

/// How often a request that may have run goes again at the most, where it may run twice: one that
/// breaks its server is not the end of all replicas.
const MAX_REPEATS: u32 = 4;

/// The leg on which a request that failed may go again; otherwise what to tell the client. What it met
/// is counted on the call, also over streams of its answer that break.
pub(super) async fn after(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    request: &Message,
    (call, sent): (&Call, &Sent),
    carried: &Carried,
    error: UpstreamError,
) -> Result<Arc<Leg>, UpstreamError> {
    let (ran, mut known) = outcome(&error);
    if matches!(error, UpstreamError::Declined(_)) {
        if known == Known::Unproven && is_forgotten(session, leg, carried).await {
            known = Known::Lost;
        } else if call.may_have_run() && !is_safe(session, request, call.sent_in()).await {
            // This try did not run, but one before it may have.
            return Err(not_repeated(session, &error));
        } else {
            // It was meant for the request.
            return Err(error);
        }
    }
    let cause = match known {
        Known::Alive => return Err(error),
        Known::Lost => Cause::Lost,
        Known::Unproven => Cause::Unproven,
    };
    let has_left = || call.is_cancelled() || sent.client_left();
    // It goes again for a loss once: a server that keeps saying so may mean something else.
    if known == Known::Lost && call.count_loss() && !has_left() {
        // The next request asks after the session: a new one for each 404 would be a storm.
        return Err(lost_again(session, request, call).await);
    }
    let may_go = match ran {
        Ran::No if known == Known::Unproven => wait(session, (call, sent)).await,
        Ran::No => true,
        Ran::Unknown => {
            let may_repeat = call.count_failure() <= MAX_REPEATS
                && is_safe(session, request, call.sent_in()).await;
            may_repeat && wait(session, (call, sent)).await
        }
        Ran::Yes => false,
    };
    let left = has_left();
    if !may_go || left {
        mend_behind(session, leg, cause, carried);
        return Err(match ran {
            Ran::Unknown => not_repeated(session, &error),
            // Nobody waits for it. That its session is lost would end that for everybody.
            Ran::No if left => UpstreamError::Cancelled,
            Ran::No | Ran::Yes => error,
        });
    }
    let mended = mended(session, leg, cause, (call, sent), carried).await?;
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, true);
    Ok(mended)
}

/// Waits for a request's next try, the first at once. `false`: there is no time left for another, or
/// nobody waits for it.
async fn wait(session: &Session, (call, sent): (&Call, &Sent)) -> bool {
    let Some(at) = call.next_try(|| Budget::of(session)) else {
        return false;
    };
    tokio::select! {
        biased;
        () = call.cancelled() => false,
        () = sent.left() => false,
        () = until(at) => true,
    }
}

/// What to tell of a request that has met a loss twice.
async fn lost_again(session: &Session, request: &Message, call: &Call) -> UpstreamError {
    let why = "the server said again that it lost the session";
    match is_safe(session, request, call.sent_in()).await {
        true => UpstreamError::NotMended(why.into()),
        false => not_repeated(session, &why),
    }
}

fn not_repeated(session: &Session, why: &dyn std::fmt::Display) -> UpstreamError {
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, false);
    UpstreamError::OutcomeUnknown(why.to_string().into())
}

/// Whether the session is what a refusal was meant for: a ping on it is refused, too.
pub(super) async fn is_forgotten(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
) -> bool {
    if leg.is_lost() || session.leg().at != leg.at {
        return true;
    }
    let limit = Budget::of(session).attempt(0);
    let pinged = tokio::time::timeout(limit, ping(leg, &session.carried(carried))).await;
    matches!(pinged, Ok(Pulse::Lost))
}

/// The leg on which a request can go, unless its client cancels it or leaves meanwhile.
pub(super) async fn mended(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    cause: Cause,
    (call, sent): (&Call, &Sent),
    carried: &Carried,
) -> Result<Arc<Leg>, UpstreamError> {
    tokio::select! {
        biased;
        () = call.cancelled() => Err(UpstreamError::Cancelled),
        () = sent.left() => Err(UpstreamError::Cancelled),
        mended = mend(session, leg, cause, carried) => Ok(mended?),
    }
}

/// Whether a request that was sent then may run twice.
pub(super) async fn is_safe(session: &Session, request: &Message, sent: Epoch) -> bool {
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::ReplayEverything) {
        return true;
    }
    let server = session.upstream.server();
    match replay::may_repeat(request, &server.recovery.replay) {
        MayRepeat::Yes => true,
        MayRepeat::No => false,
        MayRepeat::IfShown(tool) => session.may_run_twice(&tool, sent).await,
    }
}
