//! The sessions of the file that ended recently.
//!
//! They are kept in memory: only this process could still write to them, and after a restart no process
//! could. So an ended session leaves nothing on the disk, and what it leaves in memory is short-lived
//! and bounded.

use std::collections::{HashMap, VecDeque};

use crate::Key;

/// How many are remembered.
pub(super) const MAX_ENDED: usize = 4096;

/// Until when which key is remembered as ended.
#[derive(Debug, Default)]
pub(super) struct EndedKeys {
    until: HashMap<Key, u64>,
    /// Oldest first.
    order: VecDeque<(Key, u64)>,
}

// === impl EndedKeys ===

impl EndedKeys {
    pub(super) fn remember(&mut self, key: Key, until: u64, now: u64) {
        while let Some((oldest, its)) = self.order.front()
            && (*its <= now || self.order.len() >= MAX_ENDED)
        {
            // Unless the key was created and ended again.
            if self.until.get(oldest) == Some(its) {
                self.until.remove(oldest);
            }
            self.order.pop_front();
        }
        self.until.insert(key.clone(), until);
        self.order.push_back((key, until));
    }

    pub(super) fn contains(&self, key: &Key, now: u64) -> bool {
        self.until.get(key).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_remembered_than_may_be_and_none_for_longer() {
        let key = |n: usize| Key::named("test", &[&n.to_string()]);
        let mut ended = EndedKeys::default();
        for n in 0..=MAX_ENDED {
            ended.remember(key(n), 100, 0);
        }
        assert_eq!(
            (ended.until.len(), ended.order.len()),
            (MAX_ENDED, MAX_ENDED)
        );
        assert!(!ended.contains(&key(0), 0));
        assert!(ended.contains(&key(1), 99) && !ended.contains(&key(1), 100));
        ended.remember(key(0), 300, 200);
        assert_eq!((ended.until.len(), ended.order.len()), (1, 1));
    }
}
