//! Mending a session: whatever happened behind it, its leg works again or everybody learns why not.
//!
//! One flight per leg and generation. Everything that met a failure waits for the same flight and
//! shares its outcome: the same leg, if the upstream still knows the session; otherwise a new
//! generation of it, opened where the client would want it and restored to what the client believes
//! it has; or a reason. A failure that arrives late, when a newer generation exists, gets that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Leg;
use super::budget::Budget;
use super::newborn::Newborn;
use super::part::part;
use super::restore::{self, TRUSTED_FAILURES};
use super::send::{Pulse, ping};
use crate::config::OnLoss;
use crate::oauth::Wanted;
use crate::session::{Held, Published, Session, Turn};
use crate::upstream::{Carried, UpstreamError};

/// What is known of the upstream's session when mending begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The upstream said that it does not know it.
    Lost,
    /// Nothing: a ping decides.
    Unproven,
    /// It is well, and its endpoint is to go.
    Drained,
}

/// Why a session was not mended.
#[derive(Debug, Clone)]
pub(crate) enum NotMended {
    /// Nobody answered well in time.
    Unavailable(Arc<str>),
    /// The upstream wants credentials.
    Refused(http::StatusCode),
    /// The caller has to sign in.
    SignIn(Arc<Wanted>),
    /// The client has to decide: the session ended, its policy says so, or the server is not what
    /// it was.
    TellClient,
}

/// A session's flight, if there is one, and what flights have cost lately.
#[derive(Debug, Default)]
pub(crate) struct Mending {
    flight: Mutex<Option<Flight>>,
    spent: Mutex<Spent>,
}

#[derive(Debug, Clone)]
struct Flight {
    generation: u32,
    carried: Arc<Carried>,
    outcome: watch::Receiver<Option<Mended>>,
    waiters: Arc<Waiters>,
}

type Mended = Result<Arc<Leg>, NotMended>;

/// Who waits for a flight; when nobody is left it stops.
#[derive(Debug, Default)]
struct Waiters {
    count: AtomicUsize,
    nobody_left: CancellationToken,
}

/// One who waits.
struct Waiting(Arc<Waiters>);

/// How much of the budget flights have used lately.
#[derive(Debug, Default)]
struct Spent {
    time: Duration,
    /// Up to when it is reckoned.
    reckoned: Option<Instant>,
}

/// A flight that was joined.
struct Joined {
    outcome: watch::Receiver<Option<Mended>>,
    waiting: Waiting,
    /// It carries what this one would have it carry.
    is_own: bool,
}

/// Mends the session that was met broken on the leg `seen`, by a request that carried this.
pub(crate) async fn mend(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Carried,
) -> Mended {
    let carried = Arc::new(session.carried(carried));
    let mut was_refused = false;
    loop {
        let mut joined = match join(session, seen, cause, &carried) {
            Ok(joined) => joined,
            Err(newer) => return Ok(newer),
        };
        let mended = match joined.outcome.wait_for(Option::is_some).await {
            Ok(mended) => mended.clone(),
            Err(_) => None,
        };
        drop(joined.waiting);
        match mended {
            // Somebody else's headers were refused. These may not be.
            Some(Err(NotMended::Refused(_))) if !joined.is_own && !was_refused => {
                was_refused = true;
            }
            mended => return mended.unwrap_or(Err(NotMended::TellClient)),
        }
    }
}

/// Mends without anybody waiting for it: for failures whose client got an answer already. A flight that
/// is under way is joined before this returns, so that it does not stop when the last one leaves.
pub(crate) fn mend_behind(
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

/// Joins the flight, or begins it. `Err`: there is a newer leg already.
fn join(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Arc<Carried>,
) -> Result<Joined, Arc<Leg>> {
    let mut flight = session.mending.flight.lock();
    let current = session.leg();
    if current.at.generation != seen.at.generation {
        return Err(current);
    }
    if cause == Cause::Lost {
        seen.lose();
    }
    if let Some(flight) = &*flight
        && flight.generation == seen.at.generation
        && let Some(waiting) = Waiting::join(&flight.waiters)
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
    let waiting = Waiting::new(&waiters);
    *flight = Some(Flight {
        generation: seen.at.generation,
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
        let mended = tokio::select! {
            mended = fly(&session, &seen, cause, &carried) => mended,
            () = waiters.nobody_left.cancelled() => Err(NotMended::Unavailable("nobody waited any more".into())),
        };
        tell(&session, &seen, cause, &mended, started.elapsed());
        session.mending.spent.lock().add(started.elapsed());
        session.mending.flight.lock().take_if(|flight| Arc::ptr_eq(&flight.waiters, &waiters));
        sender.send_replace(Some(mended));
    });
    Ok(Joined {
        outcome,
        waiting,
        is_own: true,
    })
}

async fn fly(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Arc<Carried>,
) -> Mended {
    let server = session.upstream.server();
    let total = server.recovery.budget;
    let left = session.mending.spent.lock().left(total);
    let mut budget = Budget::new(total, left);
    let mut is_forgotten = cause == Cause::Lost;
    let mut leaves = cause != Cause::Unproven;
    let mut reason: Arc<str> = "its budget for recovery is used up".into();
    let (mut silences, mut failures) = (0, 0);
    let mut asked_for = None;
    while budget.next_attempt(asked_for.take()).await {
        let current = session.leg();
        if current.at.generation != seen.at.generation {
            return Ok(current);
        }
        if !leaves {
            let limit = budget.attempt(silences);
            match tokio::time::timeout(limit, ping(seen, carried)).await {
                Ok(Pulse::Alive) => return Ok(Arc::clone(seen)),
                Ok(Pulse::Lost) => {
                    seen.lose();
                    (is_forgotten, failures) = (true, 0);
                }
                Ok(Pulse::Unproven(why, after)) => (reason, asked_for) = (why, after),
                Err(_) => {
                    silences += 1;
                    reason = "it did not answer a ping in time".into();
                    session.upstream.note_silence(&seen.endpoint, &reason);
                }
            }
            // Where it can be had elsewhere, it is not waited for.
            leaves = is_forgotten
                || (seen.endpoint.is_ejected() && session.upstream.has_well_endpoint());
            failures += u32::from(!leaves);
            // A cookie that leads to nobody keeps a balancer from finding somebody.
            let is_astray = failures > TRUSTED_FAILURES
                && seen.has_cookies()
                && server.recovery.on_loss == OnLoss::Recover;
            if !leaves && !is_astray {
                session.upstream.endpoints.are_needed();
                continue;
            }
        }
        if server.recovery.on_loss == OnLoss::Tell && !seen.is_to_be_opened() {
            return Err(NotMended::TellClient);
        }
        let held = match session.turn(seen).await {
            Ok(Turn::Mine(held)) => held,
            Ok(Turn::Theirs) => {
                reason = "another gateway has been opening it again".into();
                continue;
            }
            Ok(Turn::Other(leg)) => return Ok(leg),
            Ok(Turn::Ended) => return Err(NotMended::TellClient),
            Err(unsure) => {
                reason = unsure.to_string().into();
                continue;
            }
        };
        let restored = restore_within(session, seen, carried, &budget, failures).await;
        let published = match restored {
            Ok(newborn) => publish(Arc::clone(session), held, newborn)
                .await
                .map_err(restore::Failed::ForGood),
            Err(failed) => Err(failed),
        };
        match published {
            Ok(published) => {
                if !is_forgotten && !seen.endpoint.is_unreachable() {
                    part(session, seen, carried);
                }
                return Ok(published);
            }
            Err(restore::Failed::ForGood(why)) => return Err(why),
            Err(restore::Failed::ForNow(why, after)) => {
                reason = why;
                asked_for = after;
            }
        }
        failures += 1;
    }
    Err(NotMended::Unavailable(reason))
}

/// One attempt to open the next generation. An endpoint that hangs is not waited for where another
/// could do it.
async fn restore_within(
    session: &Session,
    seen: &Leg,
    carried: &Arc<Carried>,
    budget: &Budget,
    failures: u32,
) -> Result<Newborn, restore::Failed> {
    let endpoint = restore::place(session, seen, failures)?;
    let limit = if session.upstream.has_well_endpoint_but(&endpoint) {
        budget.attempt(failures)
    } else {
        budget.patient_attempt()
    };
    let restoring = restore::restore(session, seen, endpoint.again(), carried, failures);
    let restored = tokio::time::timeout(limit, restoring).await;
    restored.unwrap_or_else(|_| {
        let reason = "it did not answer `initialize` in time";
        session.upstream.note_silence(&endpoint, reason);
        Err(restore::Failed::ForNow(reason.into(), None))
    })
}

/// Nothing of the client's is sent on a generation before it is published; and a session that ended
/// meanwhile stays ended, and its newborn upstream session goes, too. It is seen through even if
/// nobody waits any more: a newborn is either everybody's or nobody's.
async fn publish(session: Arc<Session>, held: Option<Held>, newborn: Newborn) -> Mended {
    let tracker = session.upstream.tracker().clone();
    let is_kept = session.is_kept();
    let publishing = async move {
        let published = session.publish(newborn.leg()).await;
        drop(held);
        match published {
            Ok(Published::Done) => Ok(newborn.stays()),
            Ok(Published::Other(theirs)) => Ok(theirs),
            Ok(Published::Ended) => Err(NotMended::TellClient),
            Err(unsure) => Err(NotMended::Unavailable(unsure.to_string().into())),
        }
    };
    if !is_kept {
        // Nothing is waited for, so nothing can come between.
        return publishing.await;
    }
    let published = tracker.spawn(publishing).await;
    published.unwrap_or(Err(NotMended::TellClient))
}

/// One line per flight, one number, and an entry in the session's timeline.
fn tell(session: &Session, seen: &Leg, cause: Cause, mended: &Mended, took: Duration) {
    let (hash, server) = (session.hash, &session.upstream.name);
    let at = &seen.endpoint.origin;
    let is_move = cause == Cause::Drained;
    let cause = cause.name();
    session.note_on(
        seen,
        if is_move { "leaving" } else { "broken" },
        format!("{cause}, generation {} at {at}", seen.at.generation),
    );
    let result = match mended {
        Ok(leg) if leg.at == seen.at => {
            tracing::info!(session = %hash, %server, cause, ?took, "session was still there");
            session.note("still there", format!("after {took:?}"));
            "still_there"
        }
        Ok(leg) => {
            let (endpoint, generation) = (&leg.endpoint.origin, leg.at.generation);
            let result = if is_move { "moved" } else { "recovered" };
            tracing::info!(session = %hash, %server, cause, ?took, %endpoint, generation, "session {result}");
            session.note(
                result,
                format!("generation {generation} at {endpoint}, after {took:?}"),
            );
            result
        }
        Err(why @ NotMended::SignIn(_)) => {
            tracing::debug!(session = %hash, %server, "session waits for a sign-in");
            session.note("waits", "for a sign-in".to_owned());
            why.name()
        }
        Err(why) => {
            tracing::warn!(session = %hash, %server, cause, ?took, ?why, "session not recovered");
            session.note("not recovered", format!("{why:?}, after {took:?}"));
            why.name()
        }
    };
    session.upstream.metrics.mended(server, result, took);
}

impl Cause {
    /// What is known of the upstream's session on this leg, where nothing new was heard.
    pub(super) fn of(leg: &Leg) -> Self {
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

impl NotMended {
    fn name(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::SignIn(_) => "sign_in",
            Self::TellClient => "told",
        }
    }
}

// === impl NotMended ===

impl From<NotMended> for UpstreamError {
    fn from(why: NotMended) -> Self {
        match why {
            NotMended::Unavailable(reason) => Self::NotMended(reason),
            NotMended::Refused(status) => Self::Refused(status),
            NotMended::SignIn(wanted) => Self::SignIn(wanted),
            NotMended::TellClient => Self::SessionLost,
        }
    }
}

// === impl Waiting ===

impl Waiting {
    fn new(waiters: &Arc<Waiters>) -> Self {
        waiters.count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(waiters))
    }

    /// One more, unless the last one has left: then the flight is about to stop.
    fn join(waiters: &Arc<Waiters>) -> Option<Self> {
        let joined = waiters
            .count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count > 0).then_some(count + 1)
            });
        joined.ok().map(|_| Self(Arc::clone(waiters)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.nobody_left.cancel();
        }
    }
}

// === impl Spent ===

impl Spent {
    /// What is left of a budget. What was used comes back while no flight is under way, second for
    /// second: a server that fails now and then is mended every time, and one that does nothing but
    /// fail is given up.
    fn left(&mut self, total: Duration) -> Duration {
        let now = Instant::now();
        if let Some(reckoned) = self.reckoned.replace(now) {
            self.time = self.time.saturating_sub(now - reckoned);
        }
        total.saturating_sub(self.time)
    }

    fn add(&mut self, time: Duration) {
        self.time += time;
        self.reckoned = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests;
