//! What a session is called in a store: by the hash of its id, within its server's scope. And what
//! belongs to a caller there.

use std::borrow::Borrow;
use std::fmt::Write as _;

use aws_lc_rs::digest;
use bowline_wire::id::SessionId;

use super::Version;

/// `SCOPE:HASH`. Whoever reads it learns no id, and no two servers' sessions meet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(Box<str>);

/// Which of a key's two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Record,
    Jar,
}

// === impl Key ===

impl Key {
    /// The key of a session of this server; `scope` is the server's name.
    pub(crate) fn of(scope: &str, id: &SessionId) -> Self {
        Self::hashed(format!("{scope}:"), id.as_bytes())
    }

    /// The key of what a caller (the local one if it has no name) was shown of this server's tools.
    pub(crate) fn of_tools(scope: &str, caller: Option<&str>) -> Self {
        // Names are not empty, so the local caller is nobody else.
        Self::hashed(format!("{scope}:tools:"), caller.unwrap_or("").as_bytes())
    }

    fn hashed(mut text: String, name: &[u8]) -> Self {
        let hash = digest::digest(&digest::SHA256, name);
        for byte in hash.as_ref() {
            // Writing to a String cannot fail.
            write!(text, "{byte:02x}").ok();
        }
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// What a sealed value is bound to, so that it opens nowhere else and as nothing else. With the
    /// version in it, an old record cannot pass for a newer one.
    pub(crate) fn bound(&self, part: Part, version: Version) -> Vec<u8> {
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
