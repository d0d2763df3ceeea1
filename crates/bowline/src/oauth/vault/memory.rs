//! Grants in this process. Also the plainest statement of the laws, to measure the others by.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

use super::slot::{self, Slot, Slots};
use crate::store::{Key, Version};

/// Grants in this process.
#[derive(Default)]
pub(crate) struct Memory {
    slots: Mutex<Slots>,
    turns: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Memory {
    pub(super) fn load(&self, key: &Key) -> Slot {
        slot::find(&self.slots.lock(), key)
    }

    pub(super) fn write(&self, key: &Key, replaces: Version, value: &str) -> Option<Version> {
        slot::replace(&mut self.slots.lock(), key, replaces, value)
    }

    pub(super) async fn turn(&self, key: &Key) -> OwnedMutexGuard<()> {
        let turn = Arc::clone(self.turns.lock().entry(key.clone()).or_default());
        turn.lock_owned().await
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}
