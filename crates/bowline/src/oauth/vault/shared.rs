//! Grants in the store that gateways share, sealed and bound to their slots and versions.
//!
//! A slot is a key of its own, never ended: an ended key forgets its version, and a writer that
//! comes late could then meet a version that it knows. What nobody uses for long is thrown away.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::slot::Slot;
use super::{LOOK_EVERY, NEVER_WRITTEN, VaultError};
use crate::store::sealed::{OpenError, SealKeys};
use crate::store::{Key, Loaded, Part, Store, StoreError, Updated, Version};
use crate::upstream::jittered;

/// How long what nobody uses is kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// For how long nobody may refresh a grant whose gateway died while it did. Long enough that a
/// gateway that merely stood still for a while does not lose its turn: a refresh token that is used
/// twice may cost the sign-in. Gateways that live renew it so many times as often.
const LEASE: Duration = Duration::from_secs(10);
const RENEWALS: u32 = 4;

/// Grants in a store that gateways share.
pub(crate) struct Shared {
    store: Arc<Store>,
    keys: SealKeys,
    /// This gateway's name among those that share the store; random.
    me: Box<str>,
    /// How many turns this gateway asked for: each is another holder, also within one gateway.
    turns: AtomicU64,
    tracker: TaskTracker,
}

// === impl Shared ===

impl Shared {
    pub(crate) fn new(
        store: Arc<Store>,
        keys: SealKeys,
        me: Box<str>,
        tracker: TaskTracker,
    ) -> Self {
        Self {
            store,
            keys,
            me,
            turns: AtomicU64::new(0),
            tracker,
        }
    }

    pub(super) async fn load(&self, key: &Key) -> Result<Slot, VaultError> {
        let live = match self.store.load(key).await? {
            Loaded::Live(live) => live,
            Loaded::Absent => return Ok(Slot::default()),
            Loaded::Ended => {
                let what = "a grant that has ended".to_owned();
                return Err(StoreError::Damaged(what).into());
            }
        };
        let place = key.bound(Part::Record, live.version);
        let value = self.keys.open(&place, &live.record)?;
        Ok(Slot {
            version: live.version,
            value: String::from_utf8(value).map_err(|_| OpenError::Tampered)?,
        })
    }

    pub(super) async fn write(
        &self,
        key: &Key,
        replaces: Version,
        value: &str,
    ) -> Result<Option<Version>, VaultError> {
        let next = replaces.next();
        let place = key.bound(Part::Record, next);
        let sealed = self.keys.seal(&place, value.as_bytes())?;
        if replaces == NEVER_WRITTEN {
            let created = self.store.create(key, &sealed, b"", KEPT).await?;
            return Ok(created.then_some(next));
        }
        match self.store.update(key, replaces, &sealed, None).await? {
            Updated::Done(version) => {
                // It is written, whatever becomes of this.
                if let Err(error) = self.touch(key).await {
                    tracing::debug!(%error, "a grant's time was not begun anew");
                }
                Ok(Some(version))
            }
            Updated::Conflict(_) | Updated::Gone => Ok(None),
        }
    }

    pub(super) async fn touch(&self, key: &Key) -> Result<(), VaultError> {
        // Whether it is there at all is for others to find out.
        self.store.touch(key, KEPT).await?;
        Ok(())
    }

    pub(super) async fn turn(&self, key: &Key) -> Result<DropGuard, VaultError> {
        let lease = format!("refresh/{}", key.as_str());
        let number = self.turns.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{}/{number}", self.me);
        while !self.store.lease(&lease, &holder, LEASE).await? {
            tokio::time::sleep(jittered(2 * LOOK_EVERY)).await;
        }
        let over = CancellationToken::new();
        let held = over.clone().drop_guard();
        let store = Arc::clone(&self.store);
        self.tracker.spawn(async move {
            let renewing = async {
                loop {
                    tokio::time::sleep(LEASE / RENEWALS).await;
                    if let Err(error) = store.lease(&lease, &holder, LEASE).await {
                        tracing::debug!(%error, "a lease was not renewed");
                    }
                }
            };
            over.run_until_cancelled(renewing).await;
            if let Err(error) = store.release(&lease, &holder).await {
                tracing::debug!(%error, "a lease was not given back and runs out");
            }
        });
        Ok(held)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
