//! The latest events of a session, such as losses and recoveries, for operators.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The maximum number of events kept per session.
const MAX_EVENTS: usize = 64;

/// A session's events. Most sessions have none beyond their opening and allocate nothing.
#[derive(Debug, Default)]
pub(crate) struct Timeline(Mutex<Vec<Event>>);

#[derive(Debug, Clone)]
struct Event {
    /// The time since the session was opened.
    after: Duration,
    what: &'static str,
    detail: String,
}

impl Timeline {
    /// Adds an event that happened `after` the session was opened.
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

    /// Records the session's first location, if there is no event yet.
    pub(crate) fn begin(&self, home: impl FnOnce() -> String) {
        let mut events = self.0.lock();
        if events.is_empty() {
            events.push(Event::pinned(home()));
        }
    }

    /// The events, oldest first. Without any, the session is still where it was opened.
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
