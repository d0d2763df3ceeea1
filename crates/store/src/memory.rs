//! Sessions in this process. Also the simplest implementation of the laws, as a reference for the others.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::local::Local;
use super::{Key, KeyState, Live, UpdateOutcome, Version};

/// How often expired keys are removed.
const SWEEP: Duration = Duration::from_secs(30);

/// Sessions in this process.
#[derive(Debug)]
pub struct Memory {
    sessions: Mutex<Sessions>,
    pub(super) local: Local,
}

#[derive(Debug)]
struct Sessions {
    slots: HashMap<Key, Slot>,
    swept: Instant,
}

#[derive(Debug)]
struct Slot {
    until: Instant,
    /// `None` when it has ended.
    live: Option<Live>,
}

// === impl Memory ===

impl Memory {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn create(&self, key: &Key, record: &[u8], jar: &[u8], ttl: Duration) -> bool {
        let mut sessions = self.sessions.lock();
        sessions.sweep();
        if sessions.find(key).is_some() {
            return false;
        }
        let live = Live {
            version: Version::FIRST,
            record: record.to_vec(),
            jar: jar.to_vec(),
            jar_since: Version::FIRST,
        };
        let slot = Slot {
            until: Instant::now() + ttl,
            live: Some(live),
        };
        sessions.slots.insert(key.clone(), slot);
        true
    }

    pub(super) fn count(&self) -> usize {
        let (sessions, now) = (self.sessions.lock(), Instant::now());
        let all = sessions.slots.iter();
        all.filter(|(key, slot)| {
            Key::is_sessions(key.as_str()) && slot.live.is_some() && now < slot.until
        })
        .count()
    }

    pub(super) fn load(&self, key: &Key) -> KeyState {
        match self.sessions.lock().find(key) {
            None => KeyState::Absent,
            Some(Slot { live: None, .. }) => KeyState::Ended,
            Some(Slot {
                live: Some(live), ..
            }) => KeyState::Live(live.clone()),
        }
    }

    pub(super) fn update(
        &self,
        key: &Key,
        version: Version,
        record: &[u8],
        jar: Option<&[u8]>,
    ) -> UpdateOutcome {
        let mut sessions = self.sessions.lock();
        match sessions.find_live(key) {
            None => UpdateOutcome::Gone,
            Some(live) if live.version != version => UpdateOutcome::Conflict(live.clone()),
            Some(live) => {
                live.version = version.next();
                live.record = record.to_vec();
                if let Some(jar) = jar {
                    live.jar = jar.to_vec();
                    live.jar_since = live.version;
                }
                UpdateOutcome::Done(live.version)
            }
        }
    }

    pub(super) fn touch(&self, key: &Key, ttl: Duration) -> bool {
        match self.sessions.lock().find(key) {
            Some(slot) if slot.live.is_some() => {
                slot.until = Instant::now() + ttl;
                true
            }
            _ => false,
        }
    }

    pub(super) fn end(&self, key: &Key, remember: Duration) -> Option<Live> {
        let mut sessions = self.sessions.lock();
        let slot = sessions.find(key)?;
        let live = slot.live.take()?;
        slot.until = Instant::now() + remember;
        Some(live)
    }

    pub(super) fn expire(&self, key: &Key, left: Duration) -> Option<Live> {
        let mut sessions = self.sessions.lock();
        let slot = sessions.find(key)?;
        if slot.until > Instant::now() + left {
            return None;
        }
        slot.live.as_ref()?;
        sessions.slots.remove(key)?.live
    }

    pub(super) fn put_jar(&self, key: &Key, since: Version, jar: &[u8]) -> bool {
        let mut sessions = self.sessions.lock();
        match sessions.find_live(key) {
            Some(live) if live.jar_since == since => {
                live.jar = jar.to_vec();
                true
            }
            _ => false,
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            sessions: Mutex::new(Sessions {
                slots: HashMap::new(),
                swept: Instant::now(),
            }),
            local: Local::default(),
        }
    }
}

// === impl Sessions ===

impl Sessions {
    fn find(&mut self, key: &Key) -> Option<&mut Slot> {
        let now = Instant::now();
        self.slots.get_mut(key).filter(|slot| now < slot.until)
    }

    fn find_live(&mut self, key: &Key) -> Option<&mut Live> {
        self.find(key)?.live.as_mut()
    }

    fn sweep(&mut self) {
        let now = Instant::now();
        if now < self.swept + SWEEP {
            return;
        }
        self.swept = now;
        self.slots.retain(|_, slot| now < slot.until);
    }
}
