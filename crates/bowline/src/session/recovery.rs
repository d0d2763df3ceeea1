//! A session's recovery state: the flight in progress, the requests that wait for it, and the budget
//! used recently. The exchange implements the flight itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::leg::Leg;
use crate::oauth::SignInReason;
use crate::upstream::{Carried, LiveError, Status, UpstreamError};

/// Why a session could not be recovered.
#[derive(Debug, Clone)]
pub(crate) enum RecoveryError {
    /// No endpoint gave a usable response in time.
    Unavailable(Arc<str>),
    /// The upstream requires credentials.
    Refused(Status),
    /// The caller has to sign in.
    SignIn(Arc<SignInReason>),
    /// What the session needs lives in another gateway, which is present.
    Elsewhere(Arc<str>),
    /// The gateway in which the session lives is present and does not answer.
    OwnerUnreachable(Arc<str>),
    /// New sessions are unknown to whoever gets their next message.
    NotSticky,
    /// The client must open a new session: this one has ended, its policy forbids recovery, or the
    /// server is not the same as before.
    TellClient,
}

/// A session's flight, if there is one, and the budget that flights have used recently.
#[derive(Debug, Default)]
pub(crate) struct RecoveryState {
    pub(crate) flight: Mutex<Option<Flight>>,
    pub(crate) spent: Mutex<Spent>,
}

impl RecoveryState {
    /// Whether the session is being recovered.
    pub(crate) fn is_under_way(&self) -> bool {
        self.flight.lock().is_some()
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Flight {
    pub(crate) generation: u32,
    pub(crate) carried: Arc<Carried>,
    pub(crate) outcome: watch::Receiver<Option<Recovered>>,
    pub(crate) waiters: Arc<Waiters>,
}

pub(crate) type Recovered = Result<Arc<Leg>, RecoveryError>;

/// The requests that wait for a flight. The flight stops when none is left.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    count: AtomicUsize,
    pub(crate) nobody_left: CancellationToken,
}

/// One waiting request.
pub(crate) struct FlightWaiter(pub(crate) Arc<Waiters>);

/// How much of the budget flights have used recently.
#[derive(Debug, Default)]
pub(crate) struct Spent {
    time: Duration,
    /// The time up to which the usage is computed.
    reckoned: Option<Instant>,
    /// Since when the budget has not been whole, or no flight got an attempt's time regardless of it.
    short_since: Option<Instant>,
}

impl RecoveryError {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Refused(_) => "refused",
            Self::SignIn(_) => "sign_in",
            Self::Elsewhere(_) => "elsewhere",
            Self::OwnerUnreachable(_) => "owner_unreachable",
            Self::NotSticky => "not_sticky",
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
            RecoveryError::Elsewhere(owner) => LiveError::Elsewhere(owner).into(),
            RecoveryError::OwnerUnreachable(why) => Self::OwnerUnreachable(why),
            RecoveryError::NotSticky => Self::NotSticky,
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

    /// Adds a waiter, unless the last one has left: then the flight is about to stop.
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
    /// The rest of a budget. Used time is credited back, second for second, while no flight is in
    /// progress: a server that fails occasionally is always recovered, and a server that fails
    /// constantly is given up.
    pub(crate) fn left(&mut self, total: Duration) -> Duration {
        let now = Instant::now();
        if let Some(reckoned) = self.reckoned.replace(now) {
            self.time = self.time.saturating_sub(now - reckoned);
        }
        total.saturating_sub(self.time)
    }

    /// The time of the next flight: the rest of the budget, and at times that of one attempt, whatever is left. A client
    /// that insists leaves so little that a server which starts slowly would not be found again.
    pub(crate) fn for_flight(&mut self, total: Duration, attempt: Duration) -> Duration {
        let (left, now) = (self.left(total), Instant::now());
        if left == total {
            self.short_since = None;
            return left;
        }
        let since = self.short_since.get_or_insert(now);
        if left >= attempt || now - *since < total {
            return left;
        }
        *since = now;
        attempt
    }

    pub(crate) fn add(&mut self, time: Duration) {
        self.time += time;
        self.reckoned = Some(Instant::now());
    }
}
