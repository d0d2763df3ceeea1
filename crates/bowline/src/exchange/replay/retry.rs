//! Decides whether a failed request is retried, and on which leg.

use std::sync::Arc;

use bowline_wire::message::Message;

use crate::exchange::ping::ping;
use crate::exchange::recovery::{Cause, recover, recover_in_background};
use crate::exchange::replay::{Safety, own_list, safety_of};
use crate::exchange::send::Request;
use crate::leg::Leg;
use crate::proof::{Proof, Ran, SessionState};
use crate::session::Session;
use crate::upstream::budget::{Budget, moment, until};
use crate::upstream::{Carried, Epoch, UpstreamError};

/// The maximum number of retries of a request that may have run and is safe to repeat. The limit keeps a
/// request that crashes its server from crashing all replicas.
const MAX_REPEATS: u32 = 4;

const UNCONFIRMED: &str = "the tools were listed again, and that list does not say that the tool only reads or may run twice";

/// The leg on which a failed request may be retried, or the error for the client. The call counts its
/// failures, also across streams of its response that break.
pub(crate) async fn after(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    error: UpstreamError,
) -> Result<Arc<Leg>, UpstreamError> {
    let Request {
        session,
        call,
        carried,
        sent,
        ..
    } = request;
    let Proof {
        ran,
        session: mut known,
    } = error.proof();
    if matches!(error, UpstreamError::Declined(_)) {
        if known == SessionState::Unproven && is_forgotten(session, leg, carried).await {
            known = SessionState::Lost;
        } else if call.may_have_run() && !may_run_twice(request, leg).await {
            // This attempt did not run, but an earlier one may have.
            return Err(not_repeated(session, &error));
        } else {
            // The server declined the request itself; the session is alive.
            return Err(error);
        }
    }
    let cause = match known {
        SessionState::Alive => return Err(error),
        SessionState::Lost => Cause::Lost,
        SessionState::Unproven => Cause::Unproven,
    };
    let has_left = || call.is_cancelled() || sent.client_left();
    // A request is retried once after a loss. A server that reports a loss again may mean something else. What ended
    // with its process or stream was not reported: that counts as a failure.
    let is_reported = known == SessionState::Lost && !error.is_end();
    if is_reported && call.count_loss() && !has_left() {
        // The next request checks the session. A new session for each 404 would overload the server.
        return Err(lost_again(request, leg).await);
    }
    let may_retry = may_retry(request, leg, ran, is_reported).await;
    let has_left = has_left();
    if may_retry != MayRetry::Yes || has_left {
        recover_in_background(session, leg, cause, carried);
        return Err(match ran {
            // Its client may send it again itself.
            Ran::Unknown if may_retry == MayRetry::TooLate && !has_left => {
                UpstreamError::NotRecovered(error.to_string().into())
            }
            Ran::Unknown => not_repeated(session, &error),
            // Nobody waits for the response. Returning a lost session here would end the session for all
            // requests.
            Ran::No if has_left => UpstreamError::Cancelled,
            Ran::No | Ran::Yes => error,
        });
    }
    let recovered = recovered(request, leg, cause).await?;
    let recovered = match call.may_have_run() {
        true => Box::pin(confirmed(request, leg, recovered)).await?,
        false => recovered,
    };
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, true);
    Ok(recovered)
}

/// Whether a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MayRetry {
    Yes,
    No,
    /// It would be safe, and the time for it is over.
    TooLate,
}

/// Whether a request may be sent again. This waits for the retry delay.
async fn may_retry(request: &Request<'_>, leg: &Leg, ran: Ran, is_reported: bool) -> MayRetry {
    let call = &request.call;
    let in_time = match ran {
        Ran::No if is_reported => true,
        Ran::No => wait(request).await,
        Ran::Unknown => {
            let is_safe = call.count_failure() <= MAX_REPEATS && may_run_twice(request, leg).await;
            if !is_safe {
                return MayRetry::No;
            }
            wait(request).await
        }
        Ran::Yes => return MayRetry::No,
    };
    match in_time {
        true => MayRetry::Yes,
        false => MayRetry::TooLate,
    }
}

/// Waits for the next attempt; the first retry is immediate. `false`: the budget is used up, or nobody waits
/// for the response.
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

/// The leg on which a request may be repeated that may have run on `leg`: `next`, or one after it. A list that is
/// requested now must say so, too.
async fn confirmed(
    request: &Request<'_>,
    leg: &Arc<Leg>,
    mut next: Arc<Leg>,
) -> Result<Arc<Leg>, UpstreamError> {
    let (session, carried) = (request.session, request.carried);
    loop {
        let error = match own_list::confirms(request, &next).await {
            // What is heard of a new generation says nothing of the one in which it may have run.
            Ok(true) if next.generation != leg.generation => return Ok(next),
            Ok(true) if may_run_twice(request, leg).await => return Ok(next),
            Ok(_) => return Err(not_repeated(session, &UNCONFIRMED)),
            Err(error @ (UpstreamError::Cancelled | UpstreamError::SignIn(_))) => {
                return Err(error);
            }
            Err(error) => error,
        };
        let cause = match (error.proof().session, &error) {
            (SessionState::Lost, _) => Cause::Lost,
            (SessionState::Unproven, UpstreamError::Declined(_)) => {
                match is_forgotten(session, &next, carried).await {
                    true => Cause::Lost,
                    false => return Err(not_repeated(session, &error)),
                }
            }
            (SessionState::Unproven, _) => Cause::Unproven,
            (SessionState::Alive, _) => return Err(not_repeated(session, &error)),
        };
        if !wait(request).await {
            return Err(not_repeated(session, &error));
        }
        next = recovered(request, &next, cause).await?;
    }
}

/// The error for a request that was lost with its session twice.
async fn lost_again(request: &Request<'_>, leg: &Leg) -> UpstreamError {
    let why = "the server reported a lost session again after the recovery, as replicas do behind a load balancer that is not sticky";
    match may_run_twice(request, leg).await {
        true => UpstreamError::NotRecovered(why.into()),
        false => not_repeated(request.session, &why),
    }
}

fn not_repeated(session: &Session, why: &dyn std::fmt::Display) -> UpstreamError {
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, false);
    UpstreamError::OutcomeUnknown(why.to_string().into())
}

/// Whether a refusal means that the session is lost: then a ping is refused, too.
pub(crate) async fn is_forgotten(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
) -> bool {
    if leg.is_lost() || session.leg().generation != leg.generation {
        return true;
    }
    // The refusal of a ping may have to wait a moment for what its stream says.
    let limit = Budget::of(&session.upstream).attempt(0) + moment(&session.upstream.config());
    let pinged = tokio::time::timeout(limit, ping(leg, &session.carried(carried))).await;
    pinged.is_ok_and(|pulse| pulse.confirms_loss())
}

/// Recovers the session and returns the leg for the request, unless the client cancels it or leaves.
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

/// Whether a request that was last sent on this leg is safe to repeat.
async fn may_run_twice(request: &Request<'_>, leg: &Leg) -> bool {
    is_safe(
        request.session,
        &request.message,
        leg,
        request.call.sent_in(),
    )
    .await
}

/// Whether a request that was sent on this leg in this epoch is safe to repeat.
pub(crate) async fn is_safe(session: &Session, request: &Message, leg: &Leg, sent: Epoch) -> bool {
    let server = session.upstream.config();
    match safety_of(request, &server.recovery.replay) {
        Safety::Safe => true,
        Safety::Unsafe => false,
        Safety::IfShown(tool) => session.is_safe_tool(leg, &tool, sent).await,
    }
}
