//! The claim to recover a session: one gateway at a time holds it.

use std::sync::Arc;
use std::time::Duration;

use bowline_store::{KeyState, Operation};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::leg::Leg;
use crate::session::Session;
use crate::session::persistence::Persistence;
use crate::session_store::PersistenceError;

/// How long a claim lasts when its gateway died. A gateway that is alive renews it several times as
/// often.
const CLAIM: Duration = Duration::from_secs(3);
const RENEWALS: u32 = 3;
/// Whether this gateway may open the next generation.
#[derive(Debug)]
pub(crate) enum Claim {
    Mine(Option<ClaimGuard>),
    /// Another gateway holds the claim.
    Theirs,
    /// Another gateway has already opened it.
    Other(Arc<Leg>),
    Ended,
}

/// The claim to open the next generation, if other gateways share the session. It lasts until this is
/// dropped or this gateway dies.
#[derive(Debug)]
pub(crate) struct ClaimGuard(#[expect(dead_code, reason = "ends it when dropped")] DropGuard);

impl Persistence {
    /// Claims the next generation after `seen`. No other gateway opens it while the claim is held.
    pub(crate) async fn claim(
        &self,
        session: &Arc<Session>,
        seen: &Leg,
    ) -> Result<Claim, PersistenceError> {
        let store = &self.session_store.store;
        let claim = format!("mend/{}", self.key.as_str());
        let claiming = store.claim(&claim, &self.session_store.me, CLAIM);
        if !self.session_store.ask(Operation::Claim, claiming).await? {
            return Ok(Claim::Theirs);
        }
        let held = self.hold(claim);
        // Checked under the claim, because its previous holder may have published a generation.
        let knew = self.known();
        let loading = store.load(&self.key);
        match self.session_store.ask(Operation::Load, loading).await? {
            KeyState::Live(live) => self.adopt(session, &live, knew).await?,
            KeyState::Absent if Box::pin(self.put_back(session)).await? => {}
            KeyState::Absent | KeyState::Ended => return Ok(Claim::Ended),
        }
        let current = session.leg();
        if current.generation.number > seen.generation.number {
            return Ok(Claim::Other(current));
        }
        Ok(Claim::Mine(Some(held)))
    }

    /// Claims for a time to keep the session at its server. The claim is not released: it lasts until this gateway
    /// renews it, or has stopped doing so. A store that takes no claim is no other gateway: at worst each pings.
    pub(crate) async fn claim_keep_alive(&self, time: Duration) -> bool {
        let claim = format!("alive/{}", self.key.as_str());
        let store = &self.session_store.store;
        let claiming = store.claim(&claim, &self.session_store.me, time);
        let claimed = self.session_store.ask(Operation::Claim, claiming).await;
        claimed.unwrap_or(true)
    }

    /// Renews a claim until the guard is dropped.
    pub(crate) fn hold(&self, claim: String) -> ClaimGuard {
        let session_store = Arc::clone(&self.session_store);
        let over = CancellationToken::new();
        let held = ClaimGuard(over.clone().drop_guard());
        self.session_store.tracker.spawn(async move {
            let renewing = async {
                loop {
                    tokio::time::sleep(CLAIM / RENEWALS).await;
                    let claiming = session_store.store.claim(&claim, &session_store.me, CLAIM);
                    if let Err(error) = session_store.ask(Operation::Claim, claiming).await {
                        tracing::debug!(%error, "claim not renewed");
                    }
                }
            };
            over.run_until_cancelled(renewing).await;
            let releasing = session_store.store.release(&claim, &session_store.me);
            if let Err(error) = session_store.ask(Operation::Release, releasing).await {
                tracing::debug!(%error, "claim not released; it expires");
            }
        });
        held
    }
}
