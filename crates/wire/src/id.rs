//! The two kinds of session id, which must never be mistaken for each other.
//!
//! [`SessionId`] is minted by Bowline and shown to clients; [`UpstreamSessionId`] is issued by an
//! upstream and shown to that upstream alone. There is no conversion between them, and neither
//! can be printed: both are bearer secrets.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderValue;
use thiserror::Error;

/// A client's session id: 192 random bits, minted by Bowline, base64url on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; Self::BYTES]);

/// The session id that an upstream issued, byte for byte as it was issued.
#[derive(Clone, PartialEq, Eq)]
pub struct UpstreamSessionId(Box<str>);

/// An upstream issued something that the protocol does not allow as a session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BadUpstreamSessionId {
    /// The header was there, but empty.
    #[error("an empty session id")]
    Empty,
    /// A byte outside 0x21 to 0x7E.
    #[error("a session id with a character outside visible ASCII")]
    NotVisibleAscii,
    /// Longer than [`UpstreamSessionId::MAX_LEN`].
    #[error("a session id of more than {} bytes", UpstreamSessionId::MAX_LEN)]
    TooLong,
}

// === impl SessionId ===

impl SessionId {
    /// How many random bytes make an id.
    pub const BYTES: usize = 24;
    const TEXT_LEN: usize = Self::BYTES / 3 * 4;

    /// Makes an id of bytes that came from a cryptographic random source.
    pub const fn from_random(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Parses a client's session id. Anything that Bowline could not have minted is `None`.
    pub fn from_header(value: &HeaderValue) -> Option<Self> {
        if value.len() != Self::TEXT_LEN {
            return None;
        }
        let mut bytes = [0; Self::BYTES];
        let read = URL_SAFE_NO_PAD.decode_slice(value.as_bytes(), &mut bytes);
        (read == Ok(Self::BYTES)).then_some(Self(bytes))
    }

    /// The id as a header for the client.
    pub fn to_header(self) -> HeaderValue {
        let mut text = [0; Self::TEXT_LEN];
        // Neither step can fail: the buffer has the exact size and base64url is ASCII.
        let written = URL_SAFE_NO_PAD.encode_slice(self.0, &mut text).unwrap_or(0);
        let mut value = HeaderValue::from_bytes(&text[..written])
            .unwrap_or_else(|_| HeaderValue::from_static(""));
        value.set_sensitive(true);
        value
    }

    /// The bytes, for hashing.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(…)")
    }
}

// === impl UpstreamSessionId ===

impl UpstreamSessionId {
    /// The longest id that is accepted. The protocol sets no limit, but memory does.
    pub const MAX_LEN: usize = 1024;

    /// Takes the id from the header of an upstream's response to `initialize`.
    pub fn issued(value: &HeaderValue) -> Result<Self, BadUpstreamSessionId> {
        Self::parse(value.as_bytes())
    }

    /// Parses an id that was issued earlier and stored.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadUpstreamSessionId> {
        if bytes.is_empty() {
            return Err(BadUpstreamSessionId::Empty);
        }
        if bytes.len() > Self::MAX_LEN {
            return Err(BadUpstreamSessionId::TooLong);
        }
        // Copied: a header is a slice of the connection's read buffer, which would otherwise
        // stay in memory for as long as the session does.
        match std::str::from_utf8(bytes) {
            Ok(text) if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Self(text.into())),
            _ => Err(BadUpstreamSessionId::NotVisibleAscii),
        }
    }

    /// The id as the upstream expects it: visible ASCII, so it is a valid header value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for UpstreamSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UpstreamSessionId(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_ids_survive_the_header() {
        let id = SessionId::from_random([0xa5; SessionId::BYTES]);
        assert_eq!(SessionId::from_header(&id.to_header()), Some(id));
    }

    #[test]
    fn what_was_not_minted_here_is_no_session_id() {
        for foreign in [
            "",
            "abc",
            "!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!",
            &"a".repeat(33),
        ] {
            let value = HeaderValue::from_str(foreign).unwrap();
            assert_eq!(SessionId::from_header(&value), None, "{foreign:?}");
        }
    }

    #[test]
    fn upstream_ids_are_any_visible_ascii() {
        let odd = r#"~!"#.to_owned() + "\\\"<>{}|^`[]@%;,=" + &"x".repeat(200);
        let id = UpstreamSessionId::issued(&HeaderValue::from_str(&odd).unwrap()).unwrap();
        assert_eq!(id.as_str(), odd);
    }

    #[test]
    fn upstream_ids_outside_visible_ascii_are_refused() {
        let refused = |bytes: &[u8]| {
            UpstreamSessionId::issued(&HeaderValue::from_bytes(bytes).unwrap()).unwrap_err()
        };
        assert_eq!(refused(b""), BadUpstreamSessionId::Empty);
        assert_eq!(refused(b"a b"), BadUpstreamSessionId::NotVisibleAscii);
        assert_eq!(refused(b"\xff"), BadUpstreamSessionId::NotVisibleAscii);
        assert_eq!(refused(&[b'x'; 1025]), BadUpstreamSessionId::TooLong);
    }

    #[test]
    fn neither_kind_can_be_printed() {
        let ours = SessionId::from_random([7; SessionId::BYTES]);
        let theirs = UpstreamSessionId::issued(&HeaderValue::from_static("secret-42")).unwrap();
        let printed = format!("{ours:?} {theirs:?}");
        assert!(!printed.contains("secret"), "{printed}");
        assert!(!printed.contains("BwcH"), "{printed}");
    }
}
