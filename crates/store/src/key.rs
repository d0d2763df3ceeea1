//! Keys of a store: a session's key has the hash of its id, within its server's scope. The key of anything
//! else has the hash of what it belongs to.

use std::borrow::Borrow;
use std::fmt::Write as _;

use aws_lc_rs::digest;
use bowline_wire::id::SessionId;

use super::Version;

/// `SCOPE:HASH`, or `KIND/HASH` for what is no session. A key reveals no id, and keys of different servers
/// never collide: no server's name has a slash.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key(Box<str>);

/// Which of a key's two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The record.
    Record,
    /// The jar.
    Jar,
}

// === impl Key ===

impl Key {
    /// The key of a session of this server; `scope` is the server's name.
    pub fn of(scope: &str, id: &SessionId) -> Self {
        let hash = digest::digest(&digest::SHA256, id.as_bytes());
        Self::hashed(format!("{scope}:"), &hash)
    }

    /// The key of something of this kind that belongs to these, in this order.
    pub fn named(kind: &str, belongs_to: &[&str]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        for one in belongs_to {
            // With its length, so that no other division of the same text is the same.
            context.update(&(one.len() as u64).to_be_bytes());
            context.update(one.as_bytes());
        }
        Self::hashed(format!("{kind}/"), &context.finish())
    }

    fn hashed(mut text: String, hash: &digest::Digest) -> Self {
        for byte in hash.as_ref() {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        Self(text.into())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the text of a key is that of a session's.
    pub(super) fn is_sessions(text: &str) -> bool {
        !text.contains('/')
    }

    /// What a sealed value is bound to, so that it opens nowhere else and as nothing else. With the
    /// version in it, an old record cannot pass for a newer one.
    pub fn bound(&self, part: Part, version: Version) -> Vec<u8> {
        let part = match part {
            Part::Record => "record",
            Part::Jar => "jar",
        };
        format!("{part}/{}/{}", self.0, version.0).into_bytes()
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}
