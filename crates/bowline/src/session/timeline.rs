//! What became of a session, for whoever asks why: losses and recoveries, the latest ones.

use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};

/// The most events of one session that are kept.
const MAX_EVENTS: usize = 64;

/// A session's history beyond its opening. Most sessions have none, and pay for none.
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

    /// Everything that is kept, oldest first.
    pub(crate) fn told(&self) -> Vec<Value> {
        let events = self.0.lock();
        let told = events.iter().map(|event| {
            json!({"after_seconds": event.after.as_secs_f64(), "what": event.what, "detail": event.detail})
        });
        told.collect()
    }
}
