//! What a client believes it has: what a recovery must restore at a server that forgot.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bowline_wire::compose;
use bowline_wire::message::Message;
use bowline_wire::sse::event_of;
use bytes::Bytes;
use parking_lot::Mutex;
use thiserror::Error;

use crate::leg::capabilities::{Capabilities, LISTS};
use crate::upstream::Carried;

/// The most that an `initialize` may bring that is kept as long as its session: its text, and what is
/// carried along. Those of real clients have a hundredth of it.
pub(crate) const MAX_OPENING: usize = 64 * 1024;

/// The most that a client may set at its server, to be restored: its subscriptions, and altogether.
const MAX_SUBSCRIPTIONS: usize = 1000;
const MAX_SAID: usize = 64 * 1024;

/// There is no room for more that a recovery would have to set again.
#[derive(Debug, Error)]
#[error(
    "a session has at most {MAX_SUBSCRIPTIONS} subscriptions, of {MAX_SAID} bytes together with its log level: unsubscribe from some"
)]
pub(crate) struct TooMuchSaid;

/// What a client said and was shown.
#[derive(Debug)]
pub(crate) struct ClientState {
    /// The client's `initialize`, as it came.
    pub(crate) initialize: Box<[u8]>,
    /// What was carried along with it, if anything was.
    pub(crate) carried: Option<Box<Carried>>,
    /// What the server capabilities in answer.
    pub(crate) capabilities: Capabilities,
    /// Whether the client has sent `notifications/initialized`.
    initialized: AtomicBool,
    /// Allocated only where there is something to remember.
    said: Mutex<Option<Box<Said>>>,
    /// Lists that the client has to be told have changed.
    changed: AtomicU8,
}

/// What a client set at its server.
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
            capabilities,
            initialized: AtomicBool::new(false),
            said: Mutex::default(),
            changed: AtomicU8::new(0),
        }
    }

    /// Makes this what the client has said.
    pub(crate) fn set(&self, initialized: bool, said: Said) {
        self.initialized.store(initialized, Ordering::Release);
        let is_something = said.level.is_some() || !said.subscriptions.is_empty();
        *self.said.lock() = is_something.then(|| Box::new(said));
    }

    /// Whether a message says something that [`ClientState::note`] remembers.
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

    /// Whether what a message sets could be remembered.
    pub(crate) fn has_room_for(&self, message: &Message) -> Result<(), TooMuchSaid> {
        let mut said = self.restorable();
        match said.note(message) {
            true => Ok(()),
            false => Err(TooMuchSaid),
        }
    }

    /// Notes what a message that the server accepted means for later.
    pub(crate) fn note(&self, message: &Message) {
        if message.method() == Some("notifications/initialized") {
            self.initialized.store(true, Ordering::Release);
            return;
        }
        if Self::is_restorable(message) && !self.said.lock().get_or_insert_default().note(message) {
            // There was room when it was asked for.
            tracing::warn!("more was set at a server at once than is restored");
        }
    }
    pub(crate) fn is_initialized(&self) -> bool {
        self.initialized.load(Ordering::Acquire)
    }

    /// What the client set, to be set again.
    pub(crate) fn restorable(&self) -> Said {
        self.said.lock().as_deref().cloned().unwrap_or_default()
    }

    /// The client must hear that every list that can change may have changed.
    pub(crate) fn lists_changed(&self) {
        self.changed
            .fetch_or(self.capabilities.changing(), Ordering::AcqRel);
    }

    /// The notifications that are due, as events; each is handed out once.
    pub(crate) fn take_news(&self) -> Option<Bytes> {
        let due = self.changed.swap(0, Ordering::AcqRel);
        if due == 0 {
            return None;
        }
        let changed = LISTS.iter().filter(|(_, bit)| due & bit != 0);
        let events = changed.map(|(list, _)| {
            let method = format!("notifications/{list}/list_changed");
            event_of(compose::bare_notification(&method).as_bytes())
        });
        Some(events.collect::<Vec<_>>().concat().into())
    }
}

// === impl Said ===

impl Said {
    /// Notes what a message sets. `false`: there is no room for it, and nothing has changed.
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

/// JSON text in the one way in which we write it: the same text may be written in several.
fn canonical(text: &str) -> Box<str> {
    let value: Result<String, _> = serde_json::from_str(text);
    let written = value.map(serde_json::Value::from);
    written.map_or_else(|_| text.into(), |value| value.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
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
        assert_eq!(client_state.take_news(), None);
        client_state.lists_changed();
        client_state.lists_changed();
        let news = client_state.take_news().unwrap();
        let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        assert_eq!(news, event_of(changed.as_bytes()));
        assert_eq!(client_state.take_news(), None);
    }
}
