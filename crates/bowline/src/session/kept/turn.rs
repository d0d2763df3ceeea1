//! Who may open a session again: one gateway at a time.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::Kept;
use crate::leg::Leg;
use crate::session::Session;
use crate::session::keeper::Unsure;
use crate::store::{Loaded, Operation};

/// For how long nobody may open a session again whose gateway died while it did. Gateways that live
/// renew it so many times as often.
const LEASE: Duration = Duration::from_secs(3);
const RENEWALS: u32 = 3;
/// Whether this gateway may open the next generation.
#[derive(Debug)]
pub(crate) enum Turn {
    Mine(Option<Held>),
    /// Another gateway is about to.
    Theirs,
    /// Another gateway has.
    Other(Arc<Leg>),
    Ended,
}

/// The turn to open the next generation, where it has to be held against other gateways: until this
/// is dropped, or this gateway dies.
#[derive(Debug)]
pub(crate) struct Held(#[expect(dead_code, reason = "ends it when dropped")] DropGuard);

impl Kept {
    /// Whether this gateway may open the next generation after `seen`; if so, nobody else does while
    /// the turn is held.
    pub(in crate::session) async fn turn(
        &self,
        session: &Arc<Session>,
        seen: &Leg,
    ) -> Result<Turn, Unsure> {
        let store = &self.keeper.store;
        let lease = format!("mend/{}", self.key.as_str());
        let leasing = store.lease(&lease, &self.keeper.me, LEASE);
        if !self.keeper.ask(Operation::Lease, leasing).await? {
            return Ok(Turn::Theirs);
        }
        let held = self.hold(lease);
        // With the lease in hand: whoever had it before may have published meanwhile.
        let knew = self.known();
        let loading = store.load(&self.key);
        match self.keeper.ask(Operation::Load, loading).await? {
            Loaded::Live(live) => self.adopt(session, &live, knew).await?,
            Loaded::Absent if Box::pin(self.put_back(session)).await? => {}
            Loaded::Absent | Loaded::Ended => return Ok(Turn::Ended),
        }
        let current = session.leg();
        if current.at.generation > seen.at.generation {
            return Ok(Turn::Other(current));
        }
        Ok(Turn::Mine(Some(held)))
    }

    /// Renews a lease until the turn is dropped, however that comes about.
    pub(super) fn hold(&self, lease: String) -> Held {
        let keeper = Arc::clone(&self.keeper);
        let over = CancellationToken::new();
        let held = Held(over.clone().drop_guard());
        self.keeper.tracker.spawn(async move {
            let renewing = async {
                loop {
                    tokio::time::sleep(LEASE / RENEWALS).await;
                    let leasing = keeper.store.lease(&lease, &keeper.me, LEASE);
                    if let Err(error) = keeper.ask(Operation::Lease, leasing).await {
                        tracing::debug!(%error, "a lease was not renewed");
                    }
                }
            };
            over.run_until_cancelled(renewing).await;
            let releasing = keeper.store.release(&lease, &keeper.me);
            if let Err(error) = keeper.ask(Operation::Release, releasing).await {
                tracing::debug!(%error, "a lease was not given back and runs out");
            }
        });
        held
    }
}
