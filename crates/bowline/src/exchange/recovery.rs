//! Recovers a session: afterwards its leg works again, or every waiting request gets the reason why not.
//!
//! There is one flight per leg and generation. All requests that met a failure wait for the same flight and
//! share its outcome: the same leg, if the upstream still knows the session; a new generation, restored to
//! the client's state; or an error. A request that failed on an older generation gets the newer one.

mod flight;
pub(crate) mod moves;
mod restore;
mod retire;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::exchange::call_timeout::CallTimeout;
use crate::leg::Leg;
use crate::session::Session;
use crate::session::recovery::{Flight, FlightWaiter, Recovered, RecoveryError, Waiters};
use crate::upstream::{Carried, UpstreamError};

/// What is known about the upstream's session when a recovery begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The upstream said that it does not know the session.
    Lost,
    /// Nothing: a ping decides.
    Unproven,
    /// The session works, and its endpoint is draining.
    Drained,
}

/// A flight that was joined.
struct Joined {
    outcome: watch::Receiver<Option<Recovered>>,
    waiting: FlightWaiter,
    /// The flight sends the same headers and query as this request.
    is_own: bool,
}

/// Recovers the session after a failure on the leg `seen`, for a request that carried `carried`.
pub(crate) async fn recover(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Carried,
) -> Recovered {
    let carried = Arc::new(session.carried(carried));
    let mut was_refused = false;
    loop {
        let mut joined = match join(session, seen, cause, &carried) {
            Ok(joined) => joined,
            Err(newer) => return Ok(newer),
        };
        let recovered = match joined.outcome.wait_for(Option::is_some).await {
            Ok(recovered) => recovered.clone(),
            Err(_) => None,
        };
        drop(joined.waiting);
        match recovered {
            // The server refused another request's headers. It may accept these.
            Some(Err(RecoveryError::Refused(_))) if !joined.is_own && !was_refused => {
                was_refused = true;
            }
            recovered => return recovered.unwrap_or(Err(RecoveryError::TellClient)),
        }
    }
}

/// Recovers in the background, after the client got its error. This joins a flight in progress before it
/// returns, so that the flight does not stop when the last other request leaves.
pub(crate) fn recover_in_background(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Carried,
) {
    let carried = Arc::new(session.carried(carried));
    let Ok(mut joined) = join(session, seen, cause, &carried) else {
        return;
    };
    session.upstream.tracker().spawn(async move {
        let is_over = joined.outcome.wait_for(Option::is_some).await.is_ok();
        drop(joined.waiting);
        is_over
    });
}

/// Waits for this work, which needs a recovery, until its call times out. The recovery continues after the timeout,
/// for the next call. Otherwise one that takes longer than a call's timeout would never finish.
pub(crate) async fn within<T>(
    timeout: &mut Option<CallTimeout>,
    session: &Arc<Session>,
    leg: &Arc<Leg>,
    carried: &Carried,
    work: impl Future<Output = Result<T, UpstreamError>>,
) -> Result<T, UpstreamError> {
    let Some(timeout) = timeout else {
        return work.await;
    };
    let is_over = poll_fn(|cx| {
        let error = ready!(timeout.poll(cx));
        recover_in_background(session, leg, Cause::of(leg), carried);
        Poll::Ready(error)
    });
    tokio::select! {
        biased;
        done = work => done,
        error = is_over => Err(error),
    }
}

/// Joins the flight, or starts one. `Err`: there is a newer leg already.
fn join(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Arc<Carried>,
) -> Result<Joined, Arc<Leg>> {
    let mut flight = session.recovery.flight.lock();
    let current = session.leg();
    if current.generation.number != seen.generation.number {
        return Err(current);
    }
    if cause == Cause::Lost {
        seen.lose();
    }
    if let Some(flight) = &*flight
        && flight.generation == seen.generation.number
        && let Some(waiting) = FlightWaiter::join(&flight.waiters)
    {
        return Ok(Joined {
            outcome: flight.outcome.clone(),
            waiting,
            is_own: flight.carried == *carried,
        });
    }
    if cause != Cause::Drained {
        session
            .upstream
            .metrics
            .broke(&session.upstream.name, cause.name());
    }
    let (sender, outcome) = watch::channel(None);
    let waiters = Arc::<Waiters>::default();
    let waiting = FlightWaiter::new(&waiters);
    *flight = Some(Flight {
        generation: seen.generation.number,
        carried: Arc::clone(carried),
        outcome: outcome.clone(),
        waiters: Arc::clone(&waiters),
    });
    drop(flight);
    let (session, seen) = (Arc::clone(session), Arc::clone(seen));
    let carried = Arc::clone(carried);
    let tracker = session.upstream.tracker().clone();
    tracker.spawn(async move {
        let started = Instant::now();
        let recovered = tokio::select! {
            recovered = flight::fly(&session, &seen, cause, &carried) => recovered,
            () = waiters.nobody_left.cancelled() => Err(RecoveryError::Unavailable("no request waits for it any more".into())),
        };
        report(&session, &seen, cause, &recovered, started.elapsed());
        session.recovery.spent.lock().add(started.elapsed());
        session.recovery.flight.lock().take_if(|flight| Arc::ptr_eq(&flight.waiters, &waiters));
        sender.send_replace(Some(recovered));
    });
    Ok(Joined {
        outcome,
        waiting,
        is_own: true,
    })
}

/// Logs and counts a flight, and adds it to the session's timeline.
fn report(session: &Session, seen: &Leg, cause: Cause, recovered: &Recovered, took: Duration) {
    let (hash, server) = (session.hash, &session.upstream.name);
    let at = &seen.endpoint.address;
    let is_move = cause == Cause::Drained;
    let cause = cause.name();
    session.note_on(
        seen,
        if is_move { "leaving" } else { "broken" },
        format!("{cause}, generation {} at {at}", seen.generation.number),
    );
    let result = match recovered {
        Ok(leg) if leg.generation == seen.generation => {
            tracing::info!(session = %hash, %server, cause, ?took, "session still alive");
            session.note("still there", format!("after {took:?}"));
            "still_there"
        }
        Ok(leg) => {
            let (endpoint, generation) = (&leg.endpoint.address, leg.generation.number);
            let result = if is_move { "moved" } else { "recovered" };
            tracing::info!(session = %hash, %server, cause, ?took, %endpoint, generation, "session {result}");
            session.note(
                result,
                format!("generation {generation} at {endpoint}, after {took:?}"),
            );
            result
        }
        Err(why @ RecoveryError::Elsewhere(owner)) => {
            tracing::debug!(session = %hash, %server, %owner, "session belongs to another gateway");
            why.name()
        }
        Err(why @ RecoveryError::SignIn(_)) => {
            tracing::debug!(session = %hash, %server, "session waits for a sign-in");
            session.note("waits", "for a sign-in".to_owned());
            why.name()
        }
        Err(why @ RecoveryError::NotSticky) => {
            let reason = UpstreamError::NotSticky;
            tracing::warn!(session = %hash, %server, cause, ?took, %reason, "session not recovered");
            session.note("not recovered", format!("not sticky, after {took:?}"));
            why.name()
        }
        Err(why) => {
            tracing::warn!(session = %hash, %server, cause, ?took, ?why, "session not recovered");
            session.note("not recovered", format!("{why:?}, after {took:?}"));
            why.name()
        }
    };
    session.upstream.metrics.recovered(server, result, took);
}

impl Cause {
    /// What is known about the upstream's session on this leg, without new evidence.
    pub(crate) fn of(leg: &Leg) -> Self {
        if leg.is_lost() {
            Self::Lost
        } else {
            Self::Unproven
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Unproven => "unproven",
            Self::Drained => "drained",
        }
    }
}

#[cfg(test)]
mod tests;
