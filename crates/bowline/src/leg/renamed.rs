//! Ids of requests that go again on the same upstream session.
//!
//! The first may still be under way there, so a repeat needs an id of its own. The client's own is
//! part of it: whoever sees the answer, on whichever stream, can give it back under that.

use bowline_wire::message::Message;
use bytes::Bytes;

const PREFIX: &str = "bowline/again/";

/// The id (JSON text) under which the request with this id (JSON text) goes for the nth time.
pub(super) fn renamed(id: &str, nth: u64) -> String {
    serde_json::Value::from(format!("{PREFIX}{nth}/{id}")).to_string()
}

/// The client's own id (JSON text) in the id of a repeat.
pub(super) fn original(id: &str) -> Option<String> {
    if !id.strip_prefix('"')?.starts_with(PREFIX) {
        return None;
    }
    let text: String = serde_json::from_str(id).ok()?;
    let (_, original) = text.strip_prefix(PREFIX)?.split_once('/')?;
    Some(original.to_owned())
}

/// An answer under the client's own id, if it has another one.
pub(super) fn given_back(answer: &Message) -> Option<Bytes> {
    let original = original(answer.id()?)?;
    Some(answer.splice(answer.id_span()?, &original))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_comes_back_as_it_was() {
        for id in [
            "7",
            "-1.50",
            "null",
            "\"\"",
            "\"7\"",
            "\"a/b\\\"\\u0041\\\\\"",
            "\"bowline/again/1/7\"",
        ] {
            let once = renamed(id, 3);
            assert_eq!(original(&once).as_deref(), Some(id));
            assert_ne!(once, renamed(id, 4));
        }
        for id in ["7", "\"7\"", "\"bowline/ping\"", "\"bowline/again/x\""] {
            assert_eq!(original(id), None, "{id}");
        }
    }
}
