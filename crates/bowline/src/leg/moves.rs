//! Moving sessions off endpoints that drain and whose time is over, a few at a time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::Leg;
use super::mend::{Cause, mend};
use super::restore::discard;
use crate::config::OnLoss;
use crate::session::{Session, Table};
use crate::upstream::Carried;

/// How many sessions of one upstream move at the same time: a thousand that all initialise at once
/// would be the outage that draining is to spare everybody.
const AT_ONCE: usize = 8;

/// An upstream's moves.
#[derive(Debug)]
pub(crate) struct Moves {
    places: Arc<Semaphore>,
    /// After one that failed the next is not tried at once.
    not_before: Mutex<Option<Instant>>,
    /// Not tasks that sleep: a gateway that stops does not wait for them.
    left: Mutex<Vec<Left>>,
}

/// An upstream session that was left, and on which other gateways may still have something under way.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) leg: Arc<Leg>,
    pub(super) carried: Arc<Carried>,
    /// When its time is over.
    pub(super) until: Instant,
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(AT_ONCE)),
            not_before: Mutex::default(),
            left: Mutex::default(),
        }
    }
}

impl Moves {
    /// Ends an upstream session when its time is over.
    pub(super) fn end_later(&self, left: Left) {
        self.left.lock().push(left);
    }

    /// Ends the upstream sessions whose time is over.
    pub(crate) fn end_left(&self) {
        let now = Instant::now();
        let due: Vec<_> = {
            let mut left = self.left.lock();
            left.extract_if(.., |left| left.until <= now).collect()
        };
        for left in due {
            discard(left.leg, left.carried);
        }
    }
}

/// Begins the moves that are due, as far as there are places for them.
pub(crate) fn move_drained(table: &Table) {
    let due = table.all().into_iter().filter(is_due);
    for session in due {
        let places = Arc::clone(&session.upstream.moves.places);
        let Ok(place) = places.try_acquire_owned() else {
            continue;
        };
        let tracker = session.upstream.tracker().clone();
        tracker.spawn(async move {
            let leg = session.leg();
            if mend(&session, &leg, Cause::Drained, &Carried::default())
                .await
                .is_err()
            {
                let server = session.upstream.server();
                let later = Instant::now() + server.recovery.budget;
                *session.upstream.moves.not_before.lock() = Some(later);
            }
            drop(place);
        });
    }
}

/// Whether a session is to move now. One whose server waits for the client's answer is not: the
/// answer would come too late.
fn is_due(session: &Arc<Session>) -> bool {
    let upstream = &session.upstream;
    let recovery = &upstream.server().recovery;
    let endpoint = &session.leg().endpoint;
    let not_before = *upstream.moves.not_before.lock();
    endpoint.has_drained_for(recovery.drain_timeout)
        && recovery.on_loss == OnLoss::Recover
        && upstream.has_well_endpoint()
        && not_before.is_none_or(|then| then <= Instant::now())
        && !session.questions.are_open()
}
