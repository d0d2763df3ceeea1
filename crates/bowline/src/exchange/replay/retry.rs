//! A request that failed: whether it is sent again, and on which leg.

use std::sync::Arc;

use bowline_wire::message::Message;

use crate::exchange::ping::ping;
use crate::exchange::recovery::{Cause, recover, recover_in_background};
use crate::exchange::replay::{self, MayRepeat};
use crate::exchange::send::Request;
use crate::leg::Leg;
use crate::session::{Call, Session};
use crate::upstream::budget::{Budget, until};
use crate::upstream::{Carried, Epoch, Proof, Pulse, Ran, SessionState, UpstreamError};

/// How often a request that may have run goes again at the most, where it may run twice: one that
/// breaks its server is not the end of all replicas.
const MAX_REPEATS: u32 = 4;

/// The leg on which a request that failed may go again; otherwise what to tell the client. What it met
/// is counted on the call, also over streams of its answer that break.
pub(crate) async fn after(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    error: UpstreamError,
) -> Result<Arc<Leg>, UpstreamError> {
    let Request {
        session,
        message,
        call,
        carried,
        sent,
    } = request;
    let Proof {
        ran,
        session: mut known,
    } = error.proof();
    if matches!(error, UpstreamError::Declined(_)) {
        if known == SessionState::Unproven && is_forgotten(session, leg, carried).await {
            known = SessionState::Lost;
        } else if call.may_have_run() && !is_safe(session, message, call.sent_in()).await {
            // This try did not run, but one before it may have.
            return Err(not_repeated(session, &error));
        } else {
            // It was meant for the request.
            return Err(error);
        }
    }
    let cause = match known {
        SessionState::Alive => return Err(error),
        SessionState::Lost => Cause::Lost,
        SessionState::Unproven => Cause::Unproven,
    };
    let has_left = || call.is_cancelled() || sent.client_left();
    // It goes again for a loss once: a server that keeps saying so may mean something else.
    if known == SessionState::Lost && call.count_loss() && !has_left() {
        // The next request asks after the session: a new one for each 404 would be a storm.
        return Err(lost_again(session, message, call).await);
    }
    let may_go = may_be_sent_again(request, ran, known).await;
    let left = has_left();
    if !may_go || left {
        recover_in_background(session, leg, cause, carried);
        return Err(match ran {
            Ran::Unknown => not_repeated(session, &error),
            // Nobody waits for it. That its session is lost would end that for everybody.
            Ran::No if left => UpstreamError::Cancelled,
            Ran::No | Ran::Yes => error,
        });
    }
    let recovered = recovered(request, leg, cause).await?;
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, true);
    Ok(recovered)
}

/// Whether a request may be sent again, after the pause that is due.
async fn may_be_sent_again(request: &Request<'_>, ran: Ran, known: SessionState) -> bool {
    let call = &request.call;
    match ran {
        Ran::No if known == SessionState::Unproven => wait(request).await,
        Ran::No => true,
        Ran::Unknown => {
            let may_repeat = call.count_failure() <= MAX_REPEATS
                && is_safe(request.session, &request.message, call.sent_in()).await;
            may_repeat && wait(request).await
        }
        Ran::Yes => false,
    }
}

/// Waits for a request's next try, the first at once. `false`: there is no time left for another, or
/// nobody waits for it.
async fn wait(request: &Request<'_>) -> bool {
    let upstream = &request.session.upstream;
    let Some(at) = request.call.next_try(|| Budget::of(upstream)) else {
        return false;
    };
    tokio::select! {
        biased;
        () = request.call.cancelled() => false,
        () = request.sent.left() => false,
        () = until(at) => true,
    }
}

/// What to tell of a request that has met a loss twice.
async fn lost_again(session: &Session, request: &Message, call: &Call) -> UpstreamError {
    let why = "the server said again that it lost the session";
    match is_safe(session, request, call.sent_in()).await {
        true => UpstreamError::NotRecovered(why.into()),
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
pub(crate) async fn is_forgotten(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
) -> bool {
    if leg.is_lost() || session.leg().generation != leg.generation {
        return true;
    }
    let limit = Budget::of(&session.upstream).attempt(0);
    let pinged = tokio::time::timeout(limit, ping(leg, &session.carried(carried))).await;
    matches!(pinged, Ok(Pulse::Lost))
}

/// The leg on which a request can go, unless its client cancels it or leaves meanwhile.
pub(crate) async fn recovered(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    cause: Cause,
) -> Result<Arc<Leg>, UpstreamError> {
    tokio::select! {
        biased;
        () = request.call.cancelled() => Err(UpstreamError::Cancelled),
        () = request.sent.left() => Err(UpstreamError::Cancelled),
        recovered = recover(request.session, leg, cause, request.carried) => Ok(recovered?),
    }
}

/// Whether a request that was sent then may run twice.
pub(crate) async fn is_safe(session: &Session, request: &Message, sent: Epoch) -> bool {
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::ReplayEverything) {
        return true;
    }
    let server = session.upstream.config();
    match replay::may_repeat(request, &server.recovery.replay) {
        MayRepeat::Yes => true,
        MayRepeat::No => false,
        MayRepeat::IfShown(tool) => session.may_run_twice(&tool, sent).await,
    }
}
