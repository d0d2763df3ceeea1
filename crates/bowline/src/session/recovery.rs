//! What a session knows of its own recovery: the flight that is under way, who waits for it, and what
//! recoveries have cost lately. What a flight does is the exchange's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leg::Leg;
use crate::oauth::SignInReason;
use crate::upstream::{Carried, Status, UpstreamError};

/// Why a session was not recovered.
#[derive(Debug, Clone)]
pub(crate) enum RecoveryError {
    /// Nobody answered well in time.
    Unavailable(Arc<str>),
    /// The upstream wants credentials.
    Refused(Status),
    /// The caller has to sign in.
    SignIn(Arc<SignInReason>),
    /// The client has to decide: the session ended, its policy says so, or the server is not what
    /// it was.
    TellClient,
}

/// A session's flight, if there is one, and what flights have cost lately.
#[derive(Debug, Default)]
pub(crate) struct RecoveryState {
    pub(crate) flight: Mutex<Option<Flight>>,
    pub(crate) spent: Mutex<Spent>,
}

#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) generation: u32,
    pub(crate) carried: Arc<Carried>,
    pub(crate) outcome: watch::Receiver<Option<Recovered>>,
    pub(crate) waiters: Arc<Waiters>,
}

pub(crate) type Recovered = Result<Arc<Leg>, RecoveryError>;

/// Who waits for a flight; when nobody is left it stops.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    pub(crate) nobody_left: CancellationToken,
}

/// One who waits.
pub(crate) struct FlightWaiter(pub(crate) Arc<Waiters>);

/// How much of the budget flights have used lately.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    time: Duration,
    /// Up to when it is reckoned.
    reckoned: Option<Instant>,
}

impl RecoveryError {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::SignIn(_) => "sign_in",
            Self::TellClient => "told",
        }
    }
}

// === impl RecoveryError ===

impl From<RecoveryError> for UpstreamError {
    fn from(why: RecoveryError) -> Self {
        match why {
            RecoveryError::Unavailable(reason) => Self::NotRecovered(reason),
            RecoveryError::Refused(status) => Self::Refused(status),
            RecoveryError::SignIn(wanted) => Self::SignIn(wanted),
            RecoveryError::TellClient => Self::SessionLost,
        }
    }
}

// === impl FlightWaiter ===

impl FlightWaiter {
    pub(crate) fn new(waiters: &Arc<Waiters>) -> Self {
        waiters.count.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(waiters))
    }

    /// One more, unless the last one has left: then the flight is about to stop.
    pub(crate) fn join(waiters: &Arc<Waiters>) -> Option<Self> {
        let joined = waiters
            .count
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count > 0).then_some(count + 1)
            });
        joined.ok().map(|_| Self(Arc::clone(waiters)))
    }
}

impl Drop for FlightWaiter {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.nobody_left.cancel();
        }
    }
}

// === impl Spent ===

impl Spent {
    /// What is left of a budget. What was used comes back while no flight is under way, second for
    /// second: a server that fails now and then is recovered every time, and one that does nothing but
    /// fail is given up.
    pub(crate) fn left(&mut self, total: Duration) -> Duration {
        let now = Instant::now();
        if let Some(reckoned) = self.reckoned.replace(now) {
            self.time = self.time.saturating_sub(now - reckoned);
        }
        total.saturating_sub(self.time)
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.time += time;
        self.reckoned = Some(Instant::now());
    }
}
