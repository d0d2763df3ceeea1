//! Ids of Bowline's own requests.
//!
//! They contain nothing that any JSON encoder escapes, and none is used twice: a server may know its
//! requests by them. The id of a request that goes again on the same upstream session, where the first
//! may still be under way, contains the client's own: whoever sees the answer, on whichever stream, can
//! give it back under that.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bowline_wire::message::Message;
use bytes::Bytes;

const PREFIX: &str = "bowline-again-";

/// An id (JSON text) for a request of our own, which nobody else's is, at this gateway or another.
pub(crate) fn own_id(purpose: &str) -> String {
    let random = RandomState::new().hash_one(purpose);
    format!(r#""bowline-{purpose}-{random:016x}""#)
}

/// The id (JSON text) under which the request with this id (JSON text) goes for the nth time.
pub(crate) fn renamed(id: &str, nth: u64) -> String {
    format!(r#""{PREFIX}{nth}-{}""#, BASE64.encode(id))
}

/// The client's own id (JSON text) in the id of a repeat.
pub(crate) fn original(id: &str) -> Option<String> {
    let inner = id.strip_prefix('"')?.strip_suffix('"')?;
    if let Some(rest) = inner.strip_prefix(PREFIX) {
        return encoded_in(rest);
    }
    if !inner.contains('\\') {
        return None;
    }
    // A server may escape what need not be escaped.
    let text: String = serde_json::from_str(id).ok()?;
    encoded_in(text.strip_prefix(PREFIX)?)
}

fn encoded_in(rest: &str) -> Option<String> {
    let (_, encoded) = rest.split_once('-')?;
    String::from_utf8(BASE64.decode(encoded).ok()?).ok()
}

/// An answer under the client's own id, if it has another one.
pub(crate) fn given_back(answer: &Message) -> Option<Bytes> {
    let original = original(answer.id()?)?;
    Some(answer.splice(answer.id_span()?, &original))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What no encoder writes otherwise.
    fn is_plain(id: &str) -> bool {
        let inner = id.trim_matches('"');
        id.len() == inner.len() + 2
            && inner
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    }

    #[test]
    fn every_id_comes_back_as_it_was() {
        for id in [
            "7",
            "-1.50",
            "null",
            "\"\"",
            "\"7\"",
            "\"a/b\\\"\\u0041\\\\<é>&+\"",
            &renamed("7", 1),
        ] {
            let once = renamed(id, 3);
            assert!(is_plain(&once), "{once}");
            assert_eq!(original(&once).as_deref(), Some(id));
            assert_eq!(
                original(&once.replace('-', "\\u002d")).as_deref(),
                Some(id),
                "escaped without need"
            );
            assert_ne!(once, renamed(id, 4));
        }
        for id in ["7", "\"7\"", &own_id("ping"), "\"bowline-again-x\""] {
            assert_eq!(original(id), None, "{id}");
        }
    }

    #[test]
    fn no_two_of_our_own_are_one() {
        let ids: std::collections::HashSet<_> = (0..1000).map(|_| own_id("ping")).collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| is_plain(id)));
    }
}
