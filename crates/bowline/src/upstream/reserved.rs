//! Keys that are reserved for Bowline: hosts recognize Bowline's own prompts by them. A server that
//! could send them in a request could make a host run a sign-in for it, so they are removed.
//!
//! JSON parsers differ, so more is treated as a reserved key than the protocol says: escapes, upper
//! and lower case, repeated keys, and objects at any depth.

use std::sync::Arc;

use bowline_wire::message::{Kind, Message};
use bytes::Bytes;
use serde_json::Value;

/// The prefix that is always reserved, whatever prefix is configured.
const OWN: &str = "bowline/";

/// Reserved keys without a prefix.
const DOCUMENTS: [&str; 3] = ["auth_server", "auth_server_metadata", "resource_metadata"];

/// The reserved keys.
#[derive(Debug, Clone)]
pub(crate) struct Reserved {
    /// The configured prefix, with its slash.
    prefix: Arc<str>,
}

impl Reserved {
    pub(crate) fn new(meta_prefix: &str) -> Self {
        Self {
            prefix: format!("{}/", plain(meta_prefix)).into(),
        }
    }

    /// Whether any parser could find a reserved key in this text.
    pub(crate) fn are_in(&self, text: &[u8]) -> bool {
        let text = plain(&String::from_utf8_lossy(text));
        let mut names = [OWN, &*self.prefix].into_iter().chain(DOCUMENTS);
        names.any(|name| text.contains(name))
    }

    /// A server's message without reserved keys; `None` if it cannot be parsed.
    pub(crate) fn cleared(&self, message: Message) -> Option<Message> {
        if message.kind() != Kind::Request || !self.are_in(message.raw()) {
            return Some(message);
        }
        let mut value: Value = serde_json::from_slice(message.raw()).ok()?;
        self.clear(&mut value, false);
        Message::from_server(value.to_string().into()).ok()
    }

    /// The members of a server's batch without reserved keys. Members that may contain them and
    /// cannot be parsed are dropped.
    pub(crate) fn cleared_batch(&self, members: Vec<Bytes>) -> Vec<Bytes> {
        let cleared = |raw: Bytes| match self.are_in(&raw) {
            false => Some(raw),
            true => {
                let message = Message::from_server(raw).ok()?;
                Some(self.cleared(message)?.raw().clone())
            }
        };
        members.into_iter().filter_map(cleared).collect()
    }

    fn clear(&self, value: &mut Value, is_meta: bool) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| !self.has(&plain(name), is_meta));
                for (name, value) in members {
                    self.clear(value, plain(name) == "_meta");
                }
            }
            Value::Array(values) => {
                values.iter_mut().for_each(|value| self.clear(value, false));
            }
            _ => {}
        }
    }

    fn has(&self, name: &str, is_meta: bool) -> bool {
        name.starts_with(OWN)
            || name.starts_with(&*self.prefix)
            || (is_meta && DOCUMENTS.contains(&name))
    }
}

/// The text without escapes and in lower case, as the most lenient parser reads names.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(char) = rest.next() {
        let char = match char {
            '\\' => match rest.next() {
                Some('u') => escaped(&mut rest),
                Some(other) => other,
                None => break,
            },
            char => char,
        };
        plain.push(match char {
            // The only two characters outside ASCII whose lower case is in ASCII.
            '\u{212a}' => 'k',
            '\u{17f}' => 's',
            char => char.to_ascii_lowercase(),
        });
    }
    plain
}

/// The character of a `\u` escape, from its four digits.
fn escaped(rest: &mut std::str::Chars<'_>) -> char {
    let Some(digits) = rest.as_str().get(..4) else {
        return 'u';
    };
    let Ok(code) = u32::from_str_radix(digits, 16) else {
        return 'u';
    };
    *rest = rest.as_str()[4..].chars();
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(text: &str) -> Option<Value> {
        let message = Message::parse(Bytes::copy_from_slice(text.as_bytes())).unwrap();
        let cleared = Reserved::new("My.App").cleared(message)?;
        Some(serde_json::from_slice(cleared.raw()).unwrap())
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
    fn what_is_not_meta_stays_as_it_is() {
        let form =
            r#"{"requestedSchema":{"properties":{"auth_server":{}}},"message":"bowline/type"}"#;
        let shown = shown(&asking(form)).unwrap();
        assert_eq!(
            shown["params"],
            serde_json::from_str::<Value>(form).unwrap()
        );
    }

    #[test]
    fn what_cannot_be_read_through_is_not_shown() {
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        for params in [
            format!(r#"{{"a":{deep},"_meta":{{"bowline/type":1}}}}"#),
            r#"{"\ud800":1,"_meta":{"bowline/type":1}}"#.to_owned(),
        ] {
            assert_eq!(shown(&asking(&params)), None);
        }
    }
}
