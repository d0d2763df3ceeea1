//! Ids of Bowline's own requests.
//!
//! They contain nothing that a JSON encoder escapes, and none is used twice, because a server may
//! identify requests by them. A request that is repeated on the same upstream session, where the
//! first may still be running, gets an id that contains the client's own id. So its answer can be
//! returned under the client's id on any stream. The same goes for the token of its progress.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bowline_wire::message::{Message, RawId, RawIdBuf};
use bytes::Bytes;

const PREFIX: &str = "bowline-again-";

/// An id for a request of our own. No other request has it, on this gateway or another.
pub(crate) fn own_id(purpose: &str) -> RawIdBuf {
    let random = RandomState::new().hash_one(purpose);
    RawIdBuf::new(format!(r#""bowline-{purpose}-{random:016x}""#))
}

/// The id for the nth repeat of the request with this id.
pub(crate) fn renamed(id: RawId<'_>, nth: u64) -> RawIdBuf {
    let encoded = BASE64.encode(id.as_str());
    RawIdBuf::new(format!(r#""{PREFIX}{nth}-{encoded}""#))
}

/// The client's own id in the id of a repeat.
pub(crate) fn original(id: RawId<'_>) -> Option<RawIdBuf> {
    let id = id.as_str();
    let inner = id.strip_prefix('"')?.strip_suffix('"')?;
    if let Some(rest) = inner.strip_prefix(PREFIX) {
        return encoded_in(rest);
    }
    if !inner.contains('\\') {
        return None;
    }
    // A server may escape characters that need no escape.
    let text: String = serde_json::from_str(id).ok()?;
    encoded_in(text.strip_prefix(PREFIX)?)
}

fn encoded_in(rest: &str) -> Option<RawIdBuf> {
    let (_, encoded) = rest.split_once('-')?;
    let id = String::from_utf8(BASE64.decode(encoded).ok()?).ok()?;
    Some(RawIdBuf::new(id))
}

/// The answer under the client's own id, if it came under the id of a repeat.
pub(crate) fn given_back(answer: &Message) -> Option<Bytes> {
    let original = original(answer.id()?)?;
    Some(answer.splice(answer.id_span()?, original.as_str()))
}

/// The progress under the client's own token, if it is that of a repeat.
pub(crate) fn token_given_back(message: &Message) -> Option<Bytes> {
    if message.method() != Some("notifications/progress") {
        return None;
    }
    let span = message.param("progressToken")?;
    let original = original(RawId::new(message.text(span)))?;
    Some(message.splice(span, original.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every encoder writes this id in the same way.
    fn is_plain(id: &str) -> bool {
        let inner = id.trim_matches('"');
        id.len() == inner.len() + 2
            && inner
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    }

    /// The client's own id, letter for letter.
    fn original_text(id: &str) -> Option<String> {
        original(RawId::new(id)).map(|own| own.to_string())
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
            renamed(RawId::new("7"), 1).as_str(),
        ] {
            let once = renamed(RawId::new(id), 3);
            assert!(is_plain(once.as_str()), "{once}");
            assert_eq!(original_text(once.as_str()).as_deref(), Some(id));
            let escaped = once.as_str().replace('-', "\\u002d");
            assert_eq!(
                original_text(&escaped).as_deref(),
                Some(id),
                "escaped without need"
            );
            assert_ne!(once, renamed(RawId::new(id), 4));
        }
        let own = own_id("ping");
        for id in ["7", "\"7\"", own.as_str(), "\"bowline-again-x\""] {
            assert_eq!(original_text(id), None, "{id}");
        }
    }

    #[test]
    fn no_two_of_our_own_are_one() {
        let ids = (0..1000).map(|_| own_id("ping").to_string());
        let ids: std::collections::HashSet<_> = ids.collect();
        assert_eq!(ids.len(), 1000);
        assert!(ids.iter().all(|id| is_plain(id)));
    }
}
