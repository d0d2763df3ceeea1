//! How a session is named to operators: by a hash, never by its id, which is a secret.

use std::fmt;

use aws_lc_rs::digest;
use bowline_wire::id::SessionId;

/// The first 64 bits of the SHA-256 hash of a session's id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SessionHash([u8; 8]);

impl SessionHash {
    pub(crate) fn of(id: &SessionId) -> Self {
        let digest = digest::digest(&digest::SHA256, id.as_bytes());
        let mut short = [0; 8];
        short.copy_from_slice(&digest.as_ref()[..8]);
        Self(short)
    }
}

impl fmt::Display for SessionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for SessionHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
