//! A request that failed: whether it goes again, and on which leg.

use std::sync::Arc;

use bowline_wire::message::Message;

use super::Leg;
use super::mend::{Cause, mend, mend_behind};
use super::outcome::{Known, Ran, outcome};
use super::replay::{self, MayRepeat};
use crate::body::Sent;
use crate::session::{Call, Session};
use crate::upstream::UpstreamError;

/// How often one request goes again at the most, whatever happens, also when its answer had begun to
/// stream: one that breaks its server is not the end of all replicas.
const MAX_AGAIN: u32 = 4;

/// The leg on which a request that failed may go again; otherwise what to tell the client. The session
/// is mended either way.
pub(super) async fn after(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    request: &Message,
    (call, sent): (&Call, &Sent),
    error: UpstreamError,
) -> Result<Arc<Leg>, UpstreamError> {
    let (ran, known) = outcome(&error);
    let cause = match known {
        Known::Alive => return Err(error),
        Known::Lost => Cause::Lost,
        Known::Unproven => Cause::Unproven,
    };
    let failures = call.count_failure();
    let may_go = match ran {
        Ran::No => true,
        Ran::Unknown => is_safe(session, request).await,
        Ran::Yes => false,
    };
    let left = call.is_cancelled() || sent.client_left();
    if !may_go || left || failures > MAX_AGAIN {
        mend_behind(session, leg, cause);
        if ran == Ran::Unknown {
            session
                .upstream
                .metrics
                .replay(&session.upstream.name, false);
        }
        return Err(match ran {
            Ran::Unknown => UpstreamError::OutcomeUnknown(error.to_string().into()),
            Ran::No if known == Known::Lost => {
                UpstreamError::NotMended("it lost the session again and again".into())
            }
            Ran::No | Ran::Yes => error,
        });
    }
    let mended = mended(session, leg, cause, (call, sent)).await?;
    session
        .upstream
        .metrics
        .replay(&session.upstream.name, true);
    Ok(mended)
}

/// The leg on which a request can go, unless its client cancels it or leaves meanwhile.
pub(super) async fn mended(
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    cause: Cause,
    (call, sent): (&Call, &Sent),
) -> Result<Arc<Leg>, UpstreamError> {
    tokio::select! {
        biased;
        () = call.cancelled() => Err(UpstreamError::Cancelled),
        () = sent.left() => Err(UpstreamError::Cancelled),
        mended = mend(session, leg, cause) => Ok(mended?),
    }
}

/// Whether a request may run twice.
pub(super) async fn is_safe(session: &Session, request: &Message) -> bool {
    #[cfg(feature = "planted")]
    if crate::planted::has(crate::planted::Bug::ReplayEverything) {
        return true;
    }
    let server = session.upstream.server();
    match replay::may_repeat(request, &server.recovery.replay) {
        MayRepeat::Yes => true,
        MayRepeat::No => false,
        MayRepeat::IfShown(tool) => session.may_run_twice(&tool).await,
    }
}
