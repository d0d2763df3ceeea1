//! The key that gateways make of their shared secret, and what they seal with it.

use std::fmt;

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bowline_store::sealed::SealKeys;

/// What the key is for; another protocol of gateways would have another key.
const PURPOSE: &[u8] = b"bowline peers 1";
const KEY_BYTES: usize = 32;

/// Part of what is sealed, so that a forward is never taken for a record or the reverse.
const FORWARD: &[u8] = b"forward";
const RECORD: &[u8] = b"record";

/// The key of all gateways on a store. It cannot be printed.
pub(crate) struct PeerSecret(SealKeys);

/// The length of a key.
struct KeyBytes;

impl KeyType for KeyBytes {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

impl PeerSecret {
    /// The key that follows from a secret.
    pub(crate) fn derive(secret: &[u8]) -> Option<Self> {
        let mut key = [0; KEY_BYTES];
        let derived = Salt::new(HKDF_SHA256, PURPOSE).extract(secret);
        let derived = derived.expand(&[PURPOSE], KeyBytes).ok()?;
        derived.fill(&mut key).ok()?;
        SealKeys::parse(&BASE64_STANDARD.encode(key)).ok().map(Self)
    }

    /// Seals a forward under its label.
    pub(super) fn seal_forward(&self, label: &[u8], plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(&[FORWARD, label].concat(), plain).ok()
    }

    pub(super) fn open_forward(&self, label: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        self.0.open(&[FORWARD, label].concat(), sealed).ok()
    }

    /// Seals the record of an answer that has this place in it.
    pub(super) fn seal_record(&self, label: &[u8], place: u64, plain: &[u8]) -> Option<Vec<u8>> {
        self.0.seal(&of_record(label, place), plain).ok()
    }

    pub(super) fn open_record(&self, label: &[u8], place: u64, sealed: &[u8]) -> Option<Vec<u8>> {
        self.0.open(&of_record(label, place), sealed).ok()
    }
}

fn of_record(label: &[u8], place: u64) -> Vec<u8> {
    [RECORD, &place.to_be_bytes(), label].concat()
}

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret(…)")
    }
}
