//! Grants in this process. Also the simplest implementation of the laws, as a reference for the others.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use bowline_store::{Key, Version};
use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::slot::{self, Slot, Slots};

/// Grants in this process.
#[derive(Default)]
pub(crate) struct Memory {
    slots: Mutex<Slots>,
    claims: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Memory {
    pub(super) fn load(&self, key: &Key) -> Slot {
        slot::find(&self.slots.lock(), key)
    }

    pub(super) fn write(&self, key: &Key, replaces: Version, value: &str) -> Option<Version> {
        slot::replace(&mut self.slots.lock(), key, replaces, value)
    }

    pub(super) async fn claim(&self, key: &Key) -> OwnedMutexGuard<()> {
        let claim = Arc::clone(self.claims.lock().entry(key.clone()).or_default());
        claim.lock_owned().await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}
