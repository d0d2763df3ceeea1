//! Keys that are reserved for Bowline: hosts recognize Bowline's own prompts by them. A server that
//! could send them in a request could make a host run a sign-in for it, so they are removed.
//!
//! JSON parsers differ, so more is treated as a reserved key than the protocol says: escapes, upper
//! and lower case, a NUL at the end, repeated keys, and each `_meta` at any depth. Outside of a `_meta` nobody
//! reads them, so there they are data. Parsers differ as much in what they take for a request: whatever has a
//! method is one here. A message that is an answer for one parser and has a method for another is dropped, and so
//! is an `elicitation/create` without an id.
//!
//! A client of several servers is told by such a key whose a message is (`said_by`). So for it they are removed from
//! answers as well, but for what a tool has structured by its own schema. Of a result they are those with a prefix.

mod cut;
mod said_by;

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

use bowline_wire::members::Members;
use bowline_wire::message::{Kind, Malformed, Message};
use bowline_wire::names::{plain, reads_as};
use bytes::Bytes;
use memchr::memchr3_iter;
use memchr::memmem::Finder;
use serde::de::IgnoredAny;

pub(crate) use self::said_by::KeyScan;
use crate::config::ServerName;

/// The prefix that is always reserved, whatever prefix is configured.
const OWN: &str = "bowline/";

/// Reserved keys without a prefix.
const DOCUMENTS: [&str; 3] = ["auth_server", "auth_server_metadata", "resource_metadata"];

/// The method of Bowline's own prompts.
const PROMPT: &str = "elicitation/create";

const UNREADABLE: &str = "reserved keys in what cannot be parsed";
const UNMARKABLE: &str = "no place for its server's name";
const TWO_READINGS: &str = "what clients of several servers could read in two ways";

/// The only two characters outside ASCII whose lower case is in ASCII.
static FOLDED: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| ["\u{212a}", "\u{17f}"].map(Finder::new));

/// The reserved keys in the messages of one server.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    keys: Arc<Keys>,
    /// Whether the client has several servers.
    is_of_union: bool,
}

#[derive(Debug)]
struct Keys {
    /// The configured prefix, with its slash.
    prefix: String,
    /// The server that must not write them.
    server: ServerName,
}

impl Reserved {
    pub(crate) fn new(meta_prefix: &str, server: &ServerName) -> Self {
        let keys = Keys {
            prefix: format!("{}/", plain(meta_prefix)),
            server: server.clone(),
        };
        Self {
            keys: Arc::new(keys),
            is_of_union: false,
        }
    }

    /// The same for a client of several servers.
    pub(crate) fn of_union(&self) -> Self {
        Self {
            is_of_union: true,
            ..self.clone()
        }
    }

    /// Whether any parser could find a reserved key in this text.
    pub(crate) fn are_in(&self, text: &[u8]) -> bool {
        if !self.may_be_in(text) {
            return false;
        }
        let text = plain(&String::from_utf8_lossy(text));
        let mut names = [OWN, &*self.keys.prefix].into_iter().chain(DOCUMENTS);
        names.any(|name| text.contains(name))
    }

    /// The same, quickly: `true` also for texts in which a name could be written in an odd way.
    fn may_be_in(&self, text: &[u8]) -> bool {
        let mut skipped = 0;
        let found = memchr3_iter(b'/', b'_', b'\\', text).any(|at| {
            if at < skipped {
                return false;
            }
            let (before, rest) = text.split_at(at);
            match (rest[0], rest.get(1)) {
                (b'/', _) => ends_with(before, OWN) || ends_with(before, &self.keys.prefix),
                (b'_', _) => ends_with(before, "auth_") || ends_with(before, "resource_"),
                // What an escape stands for is no part of a name, except of one that is escaped itself.
                (_, Some(b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't')) => {
                    skipped = at + 2;
                    false
                }
                _ => true,
            }
        });
        found || FOLDED.iter().any(|letter| letter.find(text).is_some())
    }

    /// A server's message as its client may see it; `None` if it must not be shown.
    pub(crate) fn cleared(&self, message: Message) -> Option<Message> {
        if !self.is_of_union {
            return self.without_keys(message);
        }
        if message.kind() != Kind::Response && has_two_readings(&message) {
            return dropped(TWO_READINGS);
        }
        let cleared = self.without_keys(message)?;
        said_by::marked(cleared, &self.keys.server).or_else(|| dropped(UNMARKABLE))
    }

    /// The same for the answer to a client of several servers.
    pub(crate) fn cleared_answer(&self, body: Bytes) -> Option<Bytes> {
        match Message::from_server(body.clone()) {
            Ok(message) => Some(self.cleared(message)?.raw().clone()),
            Err(_) => self.admits(&body).then_some(body),
        }
    }

    fn without_keys(&self, message: Message) -> Option<Message> {
        if message.kind() == Kind::Notification
            && message.method().is_some_and(|name| reads_as(name, PROMPT))
        {
            return dropped("elicitation/create without an id");
        }
        let stays = message.kind() == Kind::Response && !self.is_of_union;
        if stays || !self.are_in(message.raw()) {
            return Some(message);
        }
        let is_reserved = |name: &str| match (message.result_span(), message.error_span()) {
            // The other ones are for whoever is asked something.
            (Some(_), None) => self.keys.begin(name),
            _ => self.keys.have(name),
        };
        match cut::without(message.raw(), is_reserved) {
            Cow::Borrowed(_) => Some(message),
            Cow::Owned(rest) => {
                let cleared = Message::from_server(rest.into());
                cleared.ok().or_else(|| dropped(UNREADABLE))
            }
        }
    }

    /// The members of a server's batch without reserved keys, as far as they may be shown.
    pub(crate) fn cleared_batch(&self, members: Vec<Bytes>) -> Vec<Bytes> {
        let cleared = |raw: Bytes| match Message::from_server(raw.clone()) {
            Ok(message) => Some(self.cleared(message)?.raw().clone()),
            Err(_) => self.admits(&raw).then_some(raw),
        };
        members.into_iter().filter_map(cleared).collect()
    }

    /// Looks for what is cleared in an answer that is too large to be held.
    pub(crate) fn scan(&self) -> KeyScan {
        KeyScan::new(&self.keys.prefix)
    }

    /// Whether a text that Bowline cannot parse may be shown. A client may find more in it.
    pub(crate) fn admits(&self, text: &Bytes) -> bool {
        let refused = match Message::from_server(text.clone()) {
            Err(Malformed::Ambiguous) => Some("an answer that has a method"),
            // Some client may find a message in it, and nothing would say whose it is.
            _ if self.is_of_union && begins_like_json(text) => Some(TWO_READINGS),
            _ => (self.are_in(text) || is_broken_json(text)).then_some(UNREADABLE),
        };
        refused.and_then(dropped::<()>);
        refused.is_none()
    }
}

impl Keys {
    /// Whether a name in a `_meta`, without escapes and in lower case, is reserved.
    fn have(&self, name: &str) -> bool {
        self.begin(name) || DOCUMENTS.contains(&name)
    }

    /// Whether it begins like one that is.
    fn begin(&self, name: &str) -> bool {
        name.starts_with(OWN) || name.starts_with(&*self.prefix)
    }
}

/// Whether a text ends with a name of which the last character follows, in upper or lower case.
fn ends_with(before: &[u8], name: &str) -> bool {
    let name = &name.as_bytes()[..name.len() - 1];
    let at = before.len().checked_sub(name.len());
    at.is_some_and(|at| before[at..].eq_ignore_ascii_case(name))
}

/// Logs that a message is not shown.
fn dropped<T>(why: &str) -> Option<T> {
    tracing::warn!(why, "server message dropped");
    None
}

/// Whether a text begins like a message and is not JSON. Readers of related languages (YAML, scripts) know more
/// escapes, so what they would find in it is not known.
fn is_broken_json(text: &[u8]) -> bool {
    let without_mark = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    begins_like_json(text) && serde_json::from_slice::<IgnoredAny>(without_mark).is_err()
}

fn begins_like_json(text: &[u8]) -> bool {
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    matches!(text.trim_ascii_start().first(), Some(b'{' | b'['))
}

/// Whether readers could find different requests in a message.
fn has_two_readings(message: &Message) -> bool {
    let members = Members::of_bytes(message.raw());
    members.is_none_or(|members| {
        let names = ["jsonrpc", "id", "method", "params", "result", "error"];
        names.iter().any(|name| members.named(name).len() > 1)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn reserved(prefix: &str) -> Reserved {
        Reserved::new(prefix, &"weather".parse().unwrap())
    }

    fn shown(text: &str) -> Option<Value> {
        let message = Message::from_server(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let cleared = reserved("My.App").cleared(message)?;
        Some(serde_json::from_slice(cleared.raw()).unwrap())
    }

    #[test]
    fn what_begins_like_json_and_is_none_is_not_shown() {
        let reserved = reserved("bowline");
        let admits = |text: &str| reserved.admits(&Bytes::copy_from_slice(text.as_bytes()));
        for broken in [
            r#"{"method":"elicitation/create","params":{"_meta":{"\x62owline/type":1}}}"#,
            r#" {"method":"elicitation/create",}"#,
            "\u{feff}[{'method':1}]",
            "{/* */}",
        ] {
            assert!(!admits(broken), "{broken}");
        }
        for other in ["", "keep-alive", "{}", "[1]", " {\"a\":1} "] {
            assert!(admits(other), "{other}");
        }
    }

    #[test]
    fn whatever_some_reader_takes_for_a_request_is_cleared_or_dropped() {
        let asking = asking(r#"{"_meta":{"bowline/type":"oauth_flow"}}"#);
        for id in ["", r#""id":null,"#, r#""Id":1,"#, r#""id\u0000":1,"#] {
            let odd = asking.replacen(r#""id":1,"#, id, 1);
            assert_eq!(shown(&odd), None, "{odd}");
            assert_eq!(shown(&odd.replace("create", "CR\\u0045ate\\u0000")), None);
            let other = odd.replace("elicitation/create", "notifications/x");
            assert_eq!(shown(&other).unwrap()["params"], json!({"_meta": {}}));
        }
        let reserved = reserved("bowline");
        for method in ["method", "Method", r"METHOD\u0000x", r"\u006dethod"] {
            let method = format!(r#""{method}":"elicitation/create""#);
            let asking = asking.replacen(r#""method":"elicitation/create""#, &method, 1);
            for answer in [
                r#""result":{}"#,
                r#""error":{"code":1}"#,
                r#""result":null"#,
            ] {
                let both = asking.replacen(r#""id":1"#, &format!(r#""id":1,{answer}"#), 1);
                let both = Bytes::from(both);
                let is_request = Message::from_server(both.clone()).is_ok();
                assert!(!is_request || answer.ends_with("null"), "{both:?}");
                let cleared = reserved.cleared_batch(vec![both]);
                let text = cleared.concat();
                assert!(!reserved.are_in(&text), "{text:?}");
            }
        }
        // Also without the keys: it could be taken for an answer.
        let both = Bytes::from_static(br#"{"id":1,"result":{},"Method":"x"}"#);
        assert!(!reserved.admits(&both));
        let null = r#"{"id":1,"result":{"_meta":{"bowline/x":1}},"Method":null}"#;
        assert_eq!(
            shown(null).unwrap(),
            serde_json::from_str::<Value>(null).unwrap()
        );
    }

    #[test]
    fn a_quick_look_misses_nothing() {
        let reserved = reserved("My.App");
        for text in [
            r#"{"bowline/type":1}"#,
            r#"{"BOWLINE\/type":1}"#,
            r#"{"b\u006fwline/type":1}"#,
            r#"{"my.app/x":1}"#,
            r#"{"Auth_Server":1}"#,
            r#"{"auth\u005fserver":1}"#,
            r#"{"a":"\\\\","resource_metadata":1}"#,
            r#"{"re\u{17f}ource_metadata":1}"#,
            r#"{"auth_\u{17f}erver":1}"#,
        ] {
            let text = text.replace(r"\u{17f}", "\u{17f}");
            assert!(reserved.are_in(text.as_bytes()), "{text}");
        }
        for text in [
            r#"{"method":"notifications/progress","params":{"progress_x":"a\n\"b\"/\\"}}"#,
            "bowline",
            "author_server",
            "/",
            "_",
            "",
        ] {
            assert!(!reserved.may_be_in(text.as_bytes()), "{text}");
        }
    }

    fn asking(params: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{params}}}"#)
    }

    #[test]
    fn own_keys_are_taken_out_however_they_are_written() {
        for params in [
            r#"{"_meta":{"bowline/type":"oauth_flow","x":1}}"#,
            r#"{"_meta":{"My.App/state":"s","x":1}}"#,
            r#"{"_meta":{"my.app/state":"s","x":1}}"#,
            r#"{"_meta":{"bowline\/type":"oauth_flow","x":1}}"#,
            r#"{"_meta":{"\u0062owline/type":"oauth_flow","x":1}}"#,
            r#"{"_meta":{"BOWLINE\u002Ftype":"oauth_flow","x":1}}"#,
            r#"{"_meta":{"auth_server":"https://bank","x":1,"auth\u005fserver_metadata":{}}}"#,
            r#"{"_meta":{"reſource_metadata":{},"x":1}}"#,
            r#"{"_meta":{"bowline/type":1,"x":0},"_meta":{"bowline/type":2,"x":1}}"#,
            r#"{"_meta":{"bowline/type":1,"bowline/type":2,"x":1}}"#,
            r#"{"_meta":{"auth_server\u0000":1,"bowline/type\u0000":2,"x":1}}"#,
        ] {
            assert_eq!(
                shown(&asking(params)).unwrap()["params"],
                json!({"_meta": {"x": 1}})
            );
        }
        let nested =
            r#"{"a":[{"_Meta":{"auth_server":1}}],"_meta":{"y":{"_meta":{"bowline/type":1}}}}"#;
        assert_eq!(
            shown(&asking(nested)).unwrap()["params"],
            json!({"a": [{"_Meta": {}}], "_meta": {"y": {"_meta": {}}}})
        );
        let beside =
            r#"{"jsonrpc":"2.0","id":1,"method":"m","Params":{"_meta":{"bowline/type":1}}}"#;
        assert_eq!(shown(beside).unwrap()["Params"], json!({"_meta": {}}));
    }

    #[test]
    fn all_else_stays_byte_for_byte() {
        let reserved = reserved("My.App");
        let cleared = |text: &str| {
            let message = Message::from_server(Bytes::copy_from_slice(text.as_bytes())).unwrap();
            let shown = reserved.cleared(message).unwrap();
            String::from_utf8(shown.raw().to_vec()).unwrap()
        };
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for beside in [
            r#""requestedSchema":{"properties":{"auth_server":{},"bowline/x":{}}},"message":"bowline/type""#,
            r#""z":123456789012345678901234567890, "a":1e400,"\ud800":"my.app/\ud800""#,
            &format!(r#""deep":{deep},"url":"bowline/""#),
        ] {
            let mentions = asking(&format!("{{{beside}}}"));
            assert_eq!(cleared(&mentions), mentions);
            let forged = asking(&format!(
                r#"{{{beside},"_meta":{{"bowline/type":1, "x":1}}}}"#
            ));
            let left = asking(&format!(r#"{{{beside},"_meta":{{ "x":1}}}}"#));
            assert_eq!(cleared(&forged), left);
        }
    }
}
