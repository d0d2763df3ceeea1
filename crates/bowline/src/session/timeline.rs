//! What became of a session, for whoever asks why: losses and recoveries, the latest ones.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The most events of one session that are persistence.
const MAX_EVENTS: usize = 64;

/// A session's history. Most sessions have none beyond their opening, and pay for none.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Vec<Event>>);

/// Something that happened.
#[derive(Debug, Clone)]
struct Event {
    /// After the session was opened.
    after: Duration,
    what: &'static str,
    detail: String,
}

impl Timeline {
    /// Notes that something happened so long after the session was opened.
    pub(crate) fn note(&self, after: Duration, what: &'static str, detail: String) {
        let mut events = self.0.lock();
        if events.len() >= MAX_EVENTS {
            events.remove(0);
        }
        events.push(Event {
            after,
            what,
            detail,
        });
    }

    /// Notes where the session was before anything happened to it, unless something has.
    pub(crate) fn begin(&self, home: impl FnOnce() -> String) {
        let mut events = self.0.lock();
        if events.is_empty() {
            events.push(Event::pinned(home()));
        }
    }

    /// What happened, oldest first. As long as nothing has, the session is where it was opened.
    pub(crate) fn told(&self, opened: String, home: impl FnOnce() -> String) -> Vec<Value> {
        let mut told = vec![Event::opened(opened).told()];
        let events = self.0.lock();
        if events.is_empty() {
            told.push(Event::pinned(home()).told());
        }
        told.extend(events.iter().map(Event::told));
        told
    }
}

impl Event {
    fn opened(detail: String) -> Self {
        Self {
            after: Duration::ZERO,
            what: "opened",
            detail,
        }
    }

    fn pinned(detail: String) -> Self {
        Self {
            after: Duration::ZERO,
            what: "pinned",
            detail,
        }
    }

    fn told(&self) -> Value {
        json!({"after_seconds": self.after.as_secs_f64(), "what": self.what, "detail": self.detail})
    }
}
