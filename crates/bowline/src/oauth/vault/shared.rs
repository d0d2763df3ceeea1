//! Grants in the store that gateways share, sealed and bound to their slots and versions.
//!
//! A slot is one key of the store, which is never ended: an ended key forgets its version, and a late writer
//! could then meet a version that it knows. A slot that is not used for long expires.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bowline_store::sealed::{OpenError, SealKeys};
use bowline_store::{Key, Lifetime, OpenedEntry, SealedEntry, Store, StoreError, Version};
use bowline_system::jitter::jittered;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::slot::Slot;
use super::{LOOK_EVERY, NEVER_WRITTEN, VaultError};

/// How long an unused slot is kept.
const KEPT: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How long the claim of a gateway that died blocks other gateways. It is long enough that a gateway that was
/// only suspended for a moment keeps its claim: a refresh token that is used twice may cost the sign-in. A
/// living gateway renews it `RENEWALS` times in this period.
const CLAIM: Duration = Duration::from_secs(10);
const RENEWALS: u32 = 4;

/// Grants in a store that gateways share.
pub(crate) struct Shared {
    store: Arc<Store>,
    keys: SealKeys,
    /// This gateway's name among those that share the store; random.
    me: Box<str>,
    /// How many claims this gateway asked for: each is another holder, also within one gateway.
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
        match self.entry(key).load().await? {
            OpenedEntry::Live { version, value } => Ok(Slot {
                version,
                value: String::from_utf8(value).map_err(|_| OpenError::Tampered)?,
            }),
            OpenedEntry::Absent => Ok(Slot::default()),
            OpenedEntry::Ended => {
                let what = "a grant that has ended".to_owned();
                Err(StoreError::Damaged(what).into())
            }
        }
    }

    pub(super) async fn write(
        &self,
        key: &Key,
        replaces: Version,
        value: &str,
    ) -> Result<Option<Version>, VaultError> {
        let replaces = (replaces != NEVER_WRITTEN).then_some(replaces);
        let lifetime = Lifetime::FromLastWrite(KEPT);
        let entry = self.entry(key);
        Ok(entry.write(replaces, value.as_bytes(), lifetime).await?)
    }

    pub(super) async fn touch(&self, key: &Key) -> Result<(), VaultError> {
        // A key that is not there is no error here.
        self.store.touch(key, KEPT).await?;
        Ok(())
    }

    pub(super) async fn claim(&self, key: &Key) -> Result<DropGuard, VaultError> {
        let claim = format!("refresh/{}", key.as_str());
        let number = self.turns.fetch_add(1, Ordering::Relaxed);
        let holder = format!("{}/{number}", self.me);
        while !self.store.claim(&claim, &holder, CLAIM).await? {
            tokio::time::sleep(jittered(2 * LOOK_EVERY)).await;
        }
        let over = CancellationToken::new();
        let held = over.clone().drop_guard();
        let store = Arc::clone(&self.store);
        self.tracker.spawn(async move {
            let renewing = async {
                loop {
                    tokio::time::sleep(CLAIM / RENEWALS).await;
                    if let Err(error) = store.claim(&claim, &holder, CLAIM).await {
                        tracing::debug!(%error, "claim not renewed");
                    }
                }
            };
            over.run_until_cancelled(renewing).await;
            if let Err(error) = store.release(&claim, &holder).await {
                tracing::debug!(%error, "claim not released; it expires");
            }
        });
        Ok(held)
    }

    fn entry<'a>(&'a self, key: &'a Key) -> SealedEntry<'a> {
        SealedEntry::new(&self.store, &self.keys, key)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
