//! The steps of a recovery: it pings the upstream if the state of the session is unknown, and opens the next
//! generation if the session is lost, within its budget.

use std::sync::Arc;
use std::time::Duration;

use super::Cause;
use super::restore::{self, Failed, TRUSTED_FAILURES};
use super::retire::part;
use crate::config::{OnLoss, Server};
use crate::exchange::open_leg::Newborn;
use crate::exchange::ping::ping;
use crate::exchange::strays::Strays;
use crate::leg::Leg;
use crate::session::Session;
use crate::session::persistence::Published;
use crate::session::persistence::claim::{Claim, ClaimGuard};
use crate::session::recovery::{Recovered, RecoveryError};
use crate::upstream::budget::{Budget, longest_attempt};
use crate::upstream::{Carried, Pulse};

/// A flight in progress.
struct Flying<'a> {
    session: &'a Arc<Session>,
    seen: &'a Arc<Leg>,
    carried: &'a Arc<Carried>,
    server: Arc<Server>,
    budget: Budget,
    /// The upstream said that it does not know the session.
    is_forgotten: bool,
    /// A new session is opened, whether or not the upstream still knows the old one.
    leaves: bool,
    /// Why the last attempt failed, and the retry delay that the server asked for.
    reason: Arc<str>,
    asked_for: Option<Duration>,
    silences: u32,
    failures: u32,
    /// New sessions that were unknown to whoever got their next message.
    strays: Strays,
    /// Only another gateway could tell, and did not answer.
    lacks_owner: bool,
}

/// The outcome of an attempt.
enum Step {
    Over(Recovered),
    /// Another attempt may succeed.
    Retry,
    /// A new session is opened in this attempt.
    Reopen,
}

/// Recovers the session after a failure on the leg `seen`.
pub(super) async fn fly(
    session: &Arc<Session>,
    seen: &Arc<Leg>,
    cause: Cause,
    carried: &Arc<Carried>,
) -> Recovered {
    let server = session.upstream.config();
    let total = server.recovery.budget;
    let attempt = longest_attempt(total);
    let left = session.recovery.spent.lock().for_flight(total, attempt);
    let flying = Flying {
        session,
        seen,
        carried,
        server,
        budget: Budget::new(total, left),
        is_forgotten: cause == Cause::Lost,
        leaves: cause != Cause::Unproven,
        reason: "its recovery budget is used up".into(),
        asked_for: None,
        silences: 0,
        failures: 0,
        strays: Strays::default(),
        lacks_owner: false,
    };
    flying.fly().await
}

// === impl Flying ===

impl Flying<'_> {
    async fn fly(mut self) -> Recovered {
        while self.budget.next_attempt(self.asked_for.take()).await {
            let current = self.session.leg();
            if current.generation.number != self.seen.generation.number {
                return Ok(current);
            }
            let mut step = match self.leaves {
                true => Step::Reopen,
                false => self.ask().await,
            };
            if matches!(step, Step::Reopen) {
                step = self.reopen().await;
            }
            if let Step::Over(recovered) = step {
                return recovered;
            }
        }
        Err(match self.lacks_owner {
            true => RecoveryError::OwnerUnreachable(self.reason),
            false => RecoveryError::Unavailable(self.reason),
        })
    }

    /// Pings the upstream: does it still know the session?
    async fn ask(&mut self) -> Step {
        let (session, seen) = (self.session, self.seen);
        let limit = self.budget.attempt(self.silences);
        self.lacks_owner = false;
        match tokio::time::timeout(limit, ping(seen, self.carried)).await {
            Ok(Pulse::Alive) => return Step::Over(Ok(Arc::clone(seen))),
            Ok(Pulse::Elsewhere(owner)) => {
                return Step::Over(Err(RecoveryError::Elsewhere(owner)));
            }
            Ok(Pulse::Lost | Pulse::Refused) => {
                seen.lose();
                (self.is_forgotten, self.failures) = (true, 0);
            }
            Ok(Pulse::OwnerUnreachable(why)) => (self.reason, self.lacks_owner) = (why, true),
            Ok(Pulse::Unproven(why, after)) => (self.reason, self.asked_for) = (why, after),
            Err(_) => {
                self.silences += 1;
                self.reason = "it did not answer a ping in time".into();
                session.upstream.note_silence(&seen.endpoint, &self.reason);
            }
        }
        // If another endpoint is healthy, the recovery does not wait for this one.
        self.leaves = self.is_forgotten
            || (seen.endpoint.is_ejected()
                && session
                    .upstream
                    .has_healthy_endpoint_besides(&seen.endpoint));
        self.failures += u32::from(!self.leaves);
        // A cookie of a server that is gone keeps a load balancer from choosing another one.
        let has_stale_cookies = self.failures > TRUSTED_FAILURES
            && seen.has_cookies()
            && self.server.recovery.on_loss == OnLoss::Recover;
        if self.leaves || has_stale_cookies {
            return Step::Reopen;
        }
        session.upstream.endpoints.hurry();
        Step::Retry
    }

    /// Opens the next generation, if this gateway has the claim.
    async fn reopen(&mut self) -> Step {
        let (session, seen, carried) = (self.session, self.seen, self.carried);
        if self.server.recovery.on_loss == OnLoss::Tell && !seen.is_to_be_opened() {
            return Step::Over(Err(RecoveryError::TellClient));
        }
        let claim = match session.claim(seen).await {
            Ok(Claim::Mine(claim)) => claim,
            Ok(Claim::Theirs) => {
                self.reason = "another gateway was recovering it".into();
                return Step::Retry;
            }
            Ok(Claim::Other(leg)) => return Step::Over(Ok(leg)),
            Ok(Claim::Ended) => return Step::Over(Err(RecoveryError::TellClient)),
            Err(error) => {
                self.reason = error.to_string().into();
                return Step::Retry;
            }
        };
        let restored = restore_within(session, seen, carried, &self.budget, self.failures).await;
        match restored {
            Ok(newborn) => self.publish(claim, newborn).await,
            Err(Failed::ForGood(why)) => Step::Over(Err(why)),
            Err(Failed::Stray(why)) => {
                self.reason = why;
                self.failures += 1;
                match self.strays.may_go_on() {
                    true => Step::Retry,
                    false => Step::Over(Err(RecoveryError::NotSticky)),
                }
            }
            Err(Failed::ForNow(why, after)) => {
                (self.reason, self.asked_for) = (why, after);
                self.failures += 1;
                Step::Retry
            }
        }
    }

    /// Makes the next generation the session's. If that cannot be written now, because the store does not answer or
    /// others write as well, another attempt may succeed: the server is not to blame.
    async fn publish(&mut self, claim: Option<ClaimGuard>, newborn: Newborn) -> Step {
        let (session, seen) = (self.session, self.seen);
        match publish(Arc::clone(session), claim, newborn).await {
            Ok(published) => {
                if !self.is_forgotten && !seen.endpoint.is_unreachable() {
                    part(session, seen, self.carried);
                }
                Step::Over(Ok(published))
            }
            Err(Failed::ForGood(why)) => Step::Over(Err(why)),
            Err(Failed::ForNow(why, after)) => {
                (self.reason, self.asked_for) = (why, after);
                Step::Retry
            }
            // Nothing was sent to the server.
            Err(Failed::Stray(why)) => {
                self.reason = why;
                Step::Retry
            }
        }
    }
}

/// One attempt to open the next generation. The limit is short if another endpoint is healthy. A process that is
/// cut off starts from the beginning, so it has all of the time.
async fn restore_within(
    session: &Session,
    seen: &Leg,
    carried: &Arc<Carried>,
    budget: &Budget,
    failures: u32,
) -> Result<Newborn, Failed> {
    let endpoint = restore::endpoint_for(session, seen, failures)?;
    let turn = session.upstream.turn(&endpoint, budget.turn()).await;
    let _turn = turn.map_err(restore::for_now)?;
    let limit = if session.upstream.has_healthy_endpoint_besides(&endpoint) {
        budget.attempt(failures)
    } else if endpoint.address.url().is_none() {
        budget.left()
    } else {
        budget.patient_attempt()
    };
    let restoring = restore::restore(session, seen, &endpoint, carried, failures);
    let restored = tokio::time::timeout(limit, restoring).await;
    restored.unwrap_or_else(|_| {
        let reason = "it did not answer `initialize` in time";
        session.upstream.note_silence(&endpoint, reason);
        Err(Failed::ForNow(reason.into(), None))
    })
}

/// Publishes the new generation; requests use it only afterwards. If the session has ended, it stays ended,
/// and the new upstream session is ended, too. Publishing completes even if no request waits any more, so
/// that a new leg is either published or ended.
async fn publish(
    session: Arc<Session>,
    claim: Option<ClaimGuard>,
    newborn: Newborn,
) -> Result<Arc<Leg>, Failed> {
    let tracker = session.upstream.tracker().clone();
    let is_persisted = session.is_persisted();
    let publishing = async move {
        let published = session.publish(newborn.leg()).await;
        drop(claim);
        match published {
            Ok(Published::Done) => Ok(newborn.stays()),
            Ok(Published::Other(theirs)) => Ok(theirs),
            Ok(Published::Ended) => Err(Failed::ForGood(RecoveryError::TellClient)),
            Err(error) if error.may_pass() => Err(Failed::ForNow(error.to_string().into(), None)),
            Err(error) => {
                let why = RecoveryError::Unavailable(error.to_string().into());
                Err(Failed::ForGood(why))
            }
        }
    };
    if !is_persisted {
        // Nothing here awaits, so the flight cannot be stopped in between.
        return publishing.await;
    }
    let published = tracker.spawn(publishing).await;
    published.unwrap_or(Err(Failed::ForGood(RecoveryError::TellClient)))
}
