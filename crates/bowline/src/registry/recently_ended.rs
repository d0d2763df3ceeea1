//! The sessions that ended last, so that operators can look up what happened to them.

use std::collections::VecDeque;

use parking_lot::Mutex;
use serde_json::Value;

use crate::telemetry::SessionHash;

/// How many are kept.
const MAX_DEPARTED: usize = 256;

/// The last reports of ended sessions, oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentlyEnded(Mutex<VecDeque<(SessionHash, Value)>>);

impl RecentlyEnded {
    /// Adds a session, and drops the oldest one if there are too many.
    pub(crate) fn remember(&self, hash: SessionHash, told: Value) {
        let mut departed = self.0.lock();
        if departed.len() >= MAX_DEPARTED {
            departed.pop_front();
        }
        departed.push_back((hash, told));
    }

    /// The report of the session with this hash.
    pub(crate) fn find(&self, hash: &str) -> Option<Value> {
        let departed = self.0.lock();
        let found = departed.iter().find(|(known, _)| known.to_string() == hash);
        found.map(|(_, told)| told.clone())
    }
}

#[cfg(test)]
mod tests {
    use bowline_wire::id::SessionId;

    use super::*;

    #[test]
    fn the_latest_are_remembered_and_no_more() {
        let hash = |n: usize| {
            let mut id = [0; SessionId::BYTES];
            id[..8].copy_from_slice(&n.to_be_bytes());
            SessionHash::of(&SessionId::from_random(id))
        };
        let departed = RecentlyEnded::default();
        for n in 0..=MAX_DEPARTED {
            departed.remember(hash(n), n.into());
        }
        assert_eq!(departed.find(&hash(0).to_string()), None);
        assert_eq!(departed.find(&hash(1).to_string()), Some(1.into()));
        assert_eq!(departed.0.lock().len(), MAX_DEPARTED);
    }
}
