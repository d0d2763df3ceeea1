//! What a client believes it has: what a recovery must restore at a server that forgot.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use bowline_wire::message::Message;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use thiserror::Error;

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
pub(crate) struct Believed {
    /// The client's `initialize`, as it came.
    pub(crate) initialize: Box<[u8]>,
    /// What was carried along with it, if anything was.
    pub(crate) carried: Option<Box<Carried>>,
    /// What the server offered in answer.
    pub(crate) offered: Offered,
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

/// The capabilities of a server, as far as a client may rely on them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offered(u16);

/// Lists that a client was shown on a guess and its server does not have; a bit for each of
/// [`LISTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lacks(u8);

/// Lists whose changes are announced, with the bit that stands for each.
const LISTS: [(&str, u8); 3] = [("tools", 1), ("prompts", 2), ("resources", 4)];

// === impl Believed ===

impl Believed {
    pub(crate) fn new(initialize: &[u8], carried: Option<Box<Carried>>, offered: Offered) -> Self {
        Self {
            initialize: initialize.into(),
            carried,
            offered,
            initialized: AtomicBool::new(false),
            said: Mutex::default(),
            changed: AtomicU8::new(0),
        }
    }

    /// Makes this what the client has said.
    pub(super) fn set(&self, initialized: bool, said: Said) {
        self.initialized.store(initialized, Ordering::Release);
        let is_something = said.level.is_some() || !said.subscriptions.is_empty();
        *self.said.lock() = is_something.then(|| Box::new(said));
    }

    /// Whether a message says something that [`Believed::note`] remembers.
    pub(crate) fn is_memorable(message: &Message) -> bool {
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
        if Self::is_memorable(message) && !self.said.lock().get_or_insert_default().note(message) {
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
            .fetch_or(self.offered.changing(), Ordering::AcqRel);
    }

    /// The notifications that are due, as events; each is handed out once.
    pub(crate) fn take_news(&self) -> Option<Bytes> {
        let due = self.changed.swap(0, Ordering::AcqRel);
        if due == 0 {
            return None;
        }
        let news: String = LISTS
            .iter()
            .filter(|(_, bit)| due & bit != 0)
            .map(|(list, _)| {
                let method = format!("notifications/{list}/list_changed");
                format!("event: message\ndata: {{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n\n")
            })
            .collect();
        Some(news.into())
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

// === impl Offered ===

impl Offered {
    const GUESSED: u16 = 1 << 15;
    /// The bit for the first of [`LISTS`] being there at all.
    const FIRST_LIST: u16 = LISTS.len() as u16;

    /// Reads the capabilities in the result of `initialize`.
    pub(crate) fn of(capabilities: &str) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct List {
            list_changed: bool,
            subscribe: bool,
        }
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Capabilities {
            tools: Option<List>,
            prompts: Option<List>,
            resources: Option<List>,
            logging: Option<serde::de::IgnoredAny>,
            completions: Option<serde::de::IgnoredAny>,
            tasks: Option<serde::de::IgnoredAny>,
        }
        let offered: Capabilities = serde_json::from_str(capabilities).unwrap_or_default();
        let changes = |list: &Option<List>| list.as_ref().is_some_and(|list| list.list_changed);
        let bits = [
            changes(&offered.tools),
            changes(&offered.prompts),
            changes(&offered.resources),
            offered.tools.is_some(),
            offered.prompts.is_some(),
            offered.resources.is_some(),
            offered
                .resources
                .as_ref()
                .is_some_and(|list| list.subscribe),
            offered.logging.is_some(),
            offered.completions.is_some(),
            offered.tasks.is_some(),
        ];
        let bits = bits.into_iter().enumerate();
        Self(bits.fold(0, |sum, (place, bit)| sum | (u16::from(bit) << place)))
    }

    /// The same for what a client was shown before anybody could ask the server.
    pub(crate) fn guessed(capabilities: &str) -> Self {
        Self(Self::of(capabilities).0 | Self::GUESSED)
    }

    /// Whether everything that a client was shown is there. A guess was nobody's word, and binds
    /// nobody.
    pub(crate) fn covers(self, shown: Self) -> bool {
        shown.0 & Self::GUESSED != 0 || self.0 & shown.0 == shown.0
    }

    /// What was shown on a guess and is not in `real`.
    pub(crate) fn missing_in(self, real: Self) -> Lacks {
        let is_guess = self.0 & Self::GUESSED != 0;
        let missing = (self.0 & !real.0) >> Self::FIRST_LIST & 0b111;
        Lacks(if is_guess { missing as u8 } else { 0 })
    }

    /// The lists that can change.
    fn changing(self) -> u8 {
        (self.0 & 0b111) as u8
    }
}

// === impl Lacks ===

impl Lacks {
    pub(crate) fn is_nothing(&self) -> bool {
        self.0 == 0
    }

    /// The result of a request for a list that the server does not have.
    pub(crate) fn empty_list(self, method: Option<&str>) -> Option<&'static str> {
        let (list, result) = match method? {
            "tools/list" => ("tools", r#"{"tools":[]}"#),
            "prompts/list" => ("prompts", r#"{"prompts":[]}"#),
            "resources/list" => ("resources", r#"{"resources":[]}"#),
            "resources/templates/list" => ("resources", r#"{"resourceTemplates":[]}"#),
            _ => return None,
        };
        let is_lacking = LISTS
            .iter()
            .any(|(name, bit)| *name == list && self.0 & bit != 0);
        is_lacking.then_some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(text: &str) -> Message {
        Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn less_than_was_shown_does_not_cover() {
        let shown = Offered::of(r#"{"tools":{"listChanged":true},"resources":{"subscribe":true}}"#);
        assert!(shown.covers(shown));
        assert!(
            Offered::of(
                r#"{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}}"#
            )
            .covers(shown)
        );
        for less in [
            "{}",
            r#"{"tools":{},"resources":{"subscribe":true}}"#,
            r#"{"tools":{"listChanged":true},"resources":{}}"#,
        ] {
            assert!(!Offered::of(less).covers(shown), "{less}");
        }
    }

    #[test]
    fn a_guess_binds_nobody() {
        let shown = Offered::guessed(r#"{"tools":{"listChanged":true},"prompts":{}}"#);
        assert!(Offered::of("{}").covers(shown));
        assert_eq!(shown.changing(), 1);
    }

    #[test]
    fn lists_that_were_guessed_are_empty_where_the_server_has_none() {
        let shown = Offered::guessed(r#"{"tools":{},"prompts":{},"resources":{}}"#);
        let lacks = shown.missing_in(Offered::of(r#"{"tools":{},"logging":{}}"#));
        assert_eq!(lacks.empty_list(Some("tools/list")), None);
        assert_eq!(
            lacks.empty_list(Some("prompts/list")),
            Some(r#"{"prompts":[]}"#)
        );
        assert!(lacks.empty_list(Some("resources/templates/list")).is_some());
        assert_eq!(lacks.empty_list(Some("prompts/get")), None);
        let asked = Offered::of(r#"{"tools":{},"prompts":{}}"#);
        assert!(asked.missing_in(Offered::of("{}")).is_nothing());
    }

    #[test]
    fn what_the_client_set_is_remembered() {
        let believed = Believed::new(&[], None, Offered::of("{}"));
        let said = |method: &str, params: &str| {
            believed.note(&message(&format!(
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
        let restorable = believed.restorable();
        assert_eq!(restorable.subscriptions, [Box::from("\"a\"")]);
        assert_eq!(restorable.level.as_deref(), Some("\"debug\""));
        assert!(!believed.is_initialized());
    }

    #[test]
    fn what_one_client_sets_is_bounded_in_number_and_in_bytes() {
        let set = |method: &str, name: &str, value: &str| {
            message(&format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{"{name}":"{value}"}}}}"#
            ))
        };
        let believed = Believed::new(&[], None, Offered::of("{}"));
        for number in 0..2 * MAX_SUBSCRIPTIONS {
            believed.note(&set("resources/subscribe", "uri", &number.to_string()));
        }
        assert_eq!(believed.restorable().subscriptions.len(), MAX_SUBSCRIPTIONS);
        let known = set("resources/subscribe", "uri", "7");
        believed.has_room_for(&known).unwrap();
        let more = set("resources/subscribe", "uri", "more");
        believed.has_room_for(&more).unwrap_err();
        believed.note(&set("resources/unsubscribe", "uri", "7"));
        believed.has_room_for(&more).unwrap();

        let believed = Believed::new(&[], None, Offered::of("{}"));
        for number in 0..20 {
            let uri = format!("{number}{}", "x".repeat(8 * 1024));
            believed.note(&set("resources/subscribe", "uri", &uri));
            believed.note(&set(
                "logging/setLevel",
                "level",
                &"y".repeat(number * 8 * 1024),
            ));
        }
        let restorable = believed.restorable();
        assert!(restorable.len() <= MAX_SAID, "{}", restorable.len());
        believed
            .has_room_for(&set("logging/setLevel", "level", &"z".repeat(MAX_SAID)))
            .unwrap_err();
        believed
            .has_room_for(&set("logging/setLevel", "level", "error"))
            .unwrap();
    }

    #[test]
    fn news_are_told_once_and_only_of_lists_that_change() {
        let believed = Believed::new(
            &[],
            None,
            Offered::of(r#"{"tools":{"listChanged":true},"prompts":{}}"#),
        );
        assert_eq!(believed.take_news(), None);
        believed.lists_changed();
        believed.lists_changed();
        let news = believed.take_news().unwrap();
        assert_eq!(news, &b"event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}\n\n"[..]);
        assert_eq!(believed.take_news(), None);
    }
}
