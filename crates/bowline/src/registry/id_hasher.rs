//! A hasher for session ids. They are random bits of our own, so eight of their bytes are a hash already.
//!
//! Nobody can choose ids that collide: what a client sends is only looked up, and only ids that a gateway
//! minted are inserted.

use std::hash::{BuildHasherDefault, Hasher};

/// Makes the hashers of a table of sessions.
pub(super) type BuildIdHasher = BuildHasherDefault<IdHasher>;

/// The hash of one session id.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, id: &[u8]) {
        // From the end: the first byte chooses the shard, so within a shard it says little.
        if let Some(bytes) = id.last_chunk() {
            self.0 = u64::from_le_bytes(*bytes);
        }
    }

    /// The length, which all ids have in common.
    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher as _;

    use bowline_wire::id::SessionId;

    use super::*;

    #[test]
    fn ids_that_differ_in_their_last_bytes_differ_in_their_hashes() {
        let id = |number: u64| {
            let mut bytes = [7; SessionId::BYTES];
            bytes[SessionId::BYTES - 8..].copy_from_slice(&number.to_le_bytes());
            SessionId::from_random(bytes)
        };
        let hashes = BuildIdHasher::default();
        for number in [0, 1, u64::MAX] {
            assert_eq!(hashes.hash_one(id(number)), number);
        }
    }
}
