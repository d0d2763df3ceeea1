//! The client's settings at its server, which a recovery must restore when the server has lost them.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bowline_wire::compose;
use bowline_wire::message::Message;
use bowline_wire::sse::Event;
use parking_lot::Mutex;
use thiserror::Error;

use crate::leg::capabilities::{Capabilities, LISTS};
use crate::share::memory::Room;
use crate::upstream::Carried;

/// The maximum size of an `initialize` with everything carried along, because it is kept as long as the
/// session. Real clients need about a hundredth of it.
pub(crate) const MAX_OPENING: usize = 64 * 1024;

/// Limits on the settings that a client may make: the number of subscriptions, and the size of all.
const MAX_SUBSCRIPTIONS: usize = 1000;
const MAX_SAID: usize = 64 * 1024;

/// The session's settings exceed what a recovery can restore.
#[derive(Debug, Error)]
#[error(
    "a session has at most {MAX_SUBSCRIPTIONS} subscriptions, and {MAX_SAID} bytes for them and its log level: unsubscribe from some"
)]
pub(crate) struct TooMuchSaid;

/// What the client has sent, and what it was shown in response.
#[derive(Debug)]
pub(crate) struct ClientState {
    /// The client's `initialize`, unchanged.
    pub(crate) initialize: Box<[u8]>,
    /// The headers and query carried with it, if any.
    pub(crate) carried: Option<Box<Carried>>,
    /// The memory of these, if this gateway opened the session.
    _room: Room,
    /// The capabilities in the server's response.
    pub(crate) capabilities: Capabilities,
    /// Whether the client has sent `notifications/initialized`.
    initialized: AtomicBool,
    /// Allocated only if there is something to restore.
    said: Mutex<Option<Box<Said>>>,
    /// The lists that still have to be reported to the client as changed.
    changed: AtomicU8,
}

/// The settings that a client made at its server.
#[derive(Debug, Default, Clone)]
pub(crate) struct Said {
    /// The log level, as JSON text.
    pub(crate) level: Option<Box<str>>,
    /// Subscribed resources, as JSON text.
    pub(crate) subscriptions: Vec<Box<str>>,
}

// === impl ClientState ===

impl ClientState {
    pub(crate) fn new(
        initialize: &[u8],
        carried: Option<Box<Carried>>,
        capabilities: Capabilities,
    ) -> Self {
        Self {
            initialize: initialize.into(),
            carried,
            _room: Room::default(),
            capabilities,
            initialized: AtomicBool::new(false),
            said: Mutex::default(),
            changed: AtomicU8::new(0),
        }
    }

    /// The same, which holds this memory.
    pub(crate) fn holding(self, room: Room) -> Self {
        Self {
            _room: room,
            ..self
        }
    }

    /// Replaces the settings.
    pub(crate) fn set(&self, initialized: bool, said: Said) {
        self.initialized.store(initialized, Ordering::Release);
        let is_something = said.level.is_some() || !said.subscriptions.is_empty();
        *self.said.lock() = is_something.then(|| Box::new(said));
    }

    /// Whether [`ClientState::note`] would record something from this message.
    pub(crate) fn is_restorable(message: &Message) -> bool {
        matches!(
            message.method(),
            Some(
                "notifications/initialized"
                    | "logging/setLevel"
                    | "resources/subscribe"
                    | "resources/unsubscribe"
            )
        )
    }

    /// Checks that the setting in a message is within the limits.
    pub(crate) fn has_room_for(&self, message: &Message) -> Result<(), TooMuchSaid> {
        let mut said = self.restorable();
        match said.note(message) {
            true => Ok(()),
            false => Err(TooMuchSaid),
        }
    }

    /// Records the setting in a message that the server has accepted.
    pub(crate) fn note(&self, message: &Message) {
        if message.method() == Some("notifications/initialized") {
            self.initialized.store(true, Ordering::Release);
            return;
        }
        if Self::is_restorable(message) && !self.said.lock().get_or_insert_default().note(message) {
            // `has_room_for` checked this before the request was sent.
            tracing::warn!("concurrent settings exceed the limit; they will not be restored");
        }
    }
    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    /// The settings that a recovery must restore.
    pub(crate) fn restorable(&self) -> Said {
        self.said.lock().as_deref().cloned().unwrap_or_default()
    }

    /// Marks every list that can change as changed.
    pub(crate) fn lists_changed(&self) {
        self.changed
            .fetch_or(self.capabilities.changing(), Ordering::AcqRel);
    }

    /// The notifications that are due. Each is returned once.
    pub(crate) fn take_news(&self) -> Vec<Event> {
        let due = self.changed.swap(0, Ordering::AcqRel);
        let changed = LISTS.iter().filter(|(_, bit)| due & bit != 0);
        let events = changed.map(|(list, _)| {
            let method = format!("notifications/{list}/list_changed");
            Event::of_message(compose::bare_notification(&method))
        });
        events.collect()
    }
}

// === impl Said ===

impl Said {
    /// Records the setting in a message. `false`: it is over the limit, and nothing has changed.
    fn note(&mut self, message: &Message) -> bool {
        let value = |name| {
            message
                .param(name)
                .map(|span| canonical(message.text(span)))
        };
        match message.method() {
            Some("logging/setLevel") => {
                let level = value("level");
                let old = self.level.as_ref().map_or(0, |level| level.len());
                let new = level.as_ref().map_or(0, |level| level.len());
                if self.len() - old + new > MAX_SAID {
                    return false;
                }
                self.level = level;
            }
            Some("resources/subscribe") => {
                let Some(uri) = value("uri") else { return true };
                if self.subscriptions.contains(&uri) {
                    return true;
                }
                let is_full = self.subscriptions.len() >= MAX_SUBSCRIPTIONS;
                if is_full || self.len() + uri.len() > MAX_SAID {
                    return false;
                }
                self.subscriptions.push(uri);
            }
            Some("resources/unsubscribe") => {
                let Some(uri) = value("uri") else { return true };
                self.subscriptions.retain(|known| *known != uri);
            }
            _ => {}
        }
        true
    }

    fn len(&self) -> usize {
        let level = self.level.as_ref().map_or(0, |level| level.len());
        let subscriptions = self.subscriptions.iter().map(|uri| uri.len());
        level + subscriptions.sum::<usize>()
    }
}

/// Normalizes JSON text, so that equal values compare as equal text.
fn canonical(text: &str) -> Box<str> {
    let value: Result<String, _> = serde_json::from_str(text);
    let written = value.map(serde_json::Value::from);
    written.map_or_else(|_| text.into(), |value| value.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(text.to_owned().into()).unwrap()
    }

    #[test]
    fn what_the_client_set_is_remembered() {
        let client_state = ClientState::new(&[], None, Capabilities::of("{}"));
        let said = |method: &str, params: &str| {
            client_state.note(&message(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#
            )));
        };
        said("resources/subscribe", r#"{"uri":"a"}"#);
        said("resources/subscribe", r#"{"uri":"b"}"#);
        said("resources/subscribe", r#"{"uri":"a"}"#);
        said("resources/unsubscribe", r#"{"uri":"b"}"#);
        said("resources/subscribe", r#"{"uri":"c/d"}"#);
        said("resources/unsubscribe", r#"{"uri":"c\/\u0064"}"#);
        said("logging/setLevel", r#"{"level":"debug"}"#);
        let restorable = client_state.restorable();
        assert_eq!(restorable.subscriptions, [Box::from("\"a\"")]);
        assert_eq!(restorable.level.as_deref(), Some("\"debug\""));
        assert!(!client_state.is_initialized());
    }

    #[test]
    fn what_one_client_sets_is_bounded_in_number_and_in_bytes() {
        let set = |method: &str, name: &str, value: &str| {
            message(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"{name}":"{value}"}}}}"#
            ))
        };
        let client_state = ClientState::new(&[], None, Capabilities::of("{}"));
        for number in 0..2 * MAX_SUBSCRIPTIONS {
            client_state.note(&set("resources/subscribe", "uri", &number.to_string()));
        }
        assert_eq!(
            client_state.restorable().subscriptions.len(),
            MAX_SUBSCRIPTIONS
        );
        let known = set("resources/subscribe", "uri", "7");
        client_state.has_room_for(&known).unwrap();
        let more = set("resources/subscribe", "uri", "more");
        client_state.has_room_for(&more).unwrap_err();
        client_state.note(&set("resources/unsubscribe", "uri", "7"));
        client_state.has_room_for(&more).unwrap();

        let client_state = ClientState::new(&[], None, Capabilities::of("{}"));
        for number in 0..20 {
            let uri = format!("{number}{}", "x".repeat(8 * 1024));
            client_state.note(&set("resources/subscribe", "uri", &uri));
            client_state.note(&set(
                "logging/setLevel",
                "level",
                &"y".repeat(number * 8 * 1024),
            ));
        }
        let restorable = client_state.restorable();
        assert!(restorable.len() <= MAX_SAID, "{}", restorable.len());
        client_state
            .has_room_for(&set("logging/setLevel", "level", &"z".repeat(MAX_SAID)))
            .unwrap_err();
        client_state
            .has_room_for(&set("logging/setLevel", "level", "error"))
            .unwrap();
    }

    #[test]
    fn news_are_told_once_and_only_of_lists_that_change() {
        let client_state = ClientState::new(
            &[],
            None,
            Capabilities::of(r#"{"tools":{"listChanged":true},"prompts":{}}"#),
        );
        assert!(client_state.take_news().is_empty());
        client_state.lists_changed();
        client_state.lists_changed();
        let news = client_state.take_news();
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(news, [Event::of_message(changed)]);
        assert!(client_state.take_news().is_empty());
    }
}
