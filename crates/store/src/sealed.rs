//! Sealed values: only gateways with the key can read them, and only in the place where they were written.
//!
//! AES-256-GCM-SIV under a random nonce: if a nonce ever repeats, it reveals at most that two values
//! are equal, so one key may seal for years; rotation is for keys that leaked. A value is bound to
//! its place ([`Key::bound`](super::Key::bound)), so it opens neither under another session's key nor
//! as another version of the same record.
//!
//! A sealed value is the format (1), the id of the key, the nonce, and the ciphertext with its tag.

mod source;

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::{digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};

use crate::{Key, Part, Version};

pub use self::source::SealKeysError;
pub use self::source::{beside_sessions, from_file, kept_for};

const FORMAT: u8 = 1;
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 8;
const HEAD_BYTES: usize = 1 + ID_BYTES;

/// Accepts keys with and without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::Indifferent),
);

/// The keys that seal the values of a store, newest first: the first one seals, and all of them open.
#[derive(Clone, PartialEq, Eq)]
pub struct SealKeys {
    newest: SealKey,
    older: Vec<SealKey>,
}

/// One key. It cannot be printed; its id may be.
#[derive(Clone, PartialEq, Eq)]
struct SealKey {
    bytes: [u8; KEY_BYTES],
    id: [u8; ID_BYTES],
}

/// Why a value does not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// It is sealed with a key that this gateway does not have.
    #[error("sealed with an unknown key")]
    UnknownKey,
    /// A newer Bowline sealed it.
    #[error("sealed in an unknown format")]
    UnknownFormat,
    /// It was changed, cut, moved to another place, or never sealed.
    #[error("not what was sealed for this place")]
    Tampered,
}

/// The system has no random bytes.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the system's source of random bytes failed")]
pub struct NoRandomness;

// === impl SealKeys ===

impl SealKeys {
    /// Reads keys in base64, newest first, separated by commas or white space.
    ///
    /// # Errors
    ///
    /// When there is none, or one is not 32 bytes in base64.
    pub fn parse(text: &str) -> Result<Self, SealKeysError> {
        let written = text.split(|c: char| c == ',' || c.is_whitespace());
        let written = written.filter(|one| !one.is_empty()).enumerate();
        let mut keys = written.map(|(at, one)| {
            let decoded = LENIENT.decode(one).ok();
            let bytes = decoded.and_then(|bytes| bytes.try_into().ok());
            let key = bytes.map(SealKey::new);
            key.ok_or(SealKeysError::NotAKey { number: at + 1 })
        });
        let newest = keys.next().ok_or(SealKeysError::Empty)??;
        let older = keys.collect::<Result<_, _>>()?;
        Ok(Self { newest, older })
    }

    /// A new key, as [`SealKeys::parse`] reads it.
    ///
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub fn generate() -> Result<String, NoRandomness> {
        let mut bytes = [0; KEY_BYTES];
        rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
        Ok(STANDARD.encode(bytes))
    }

    /// The ids of the keys, newest first.
    pub fn ids(&self) -> Vec<String> {
        self.all().map(SealKey::name).collect()
    }

    fn all(&self) -> impl Iterator<Item = &SealKey> {
        std::iter::once(&self.newest).chain(&self.older)
    }

    /// Seals a value for a place.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, NoRandomness> {
        let head = self.newest.head();
        let mut text = plain.to_vec();
        let key = self.newest.expand().ok_or(NoRandomness)?;
        let nonce = key
            .seal_in_place_append_tag(Aad::from(bound(&head, place)), &mut text)
            .map_err(|_| NoRandomness)?;
        let mut sealed = Vec::with_capacity(HEAD_BYTES + NONCE_LEN + text.len());
        sealed.extend_from_slice(&head);
        sealed.extend_from_slice(nonce.as_ref());
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Seals this part of what is under a key, for the version that it will have.
    ///
    /// # Errors
    ///
    /// When the system has no random bytes.
    pub fn seal_part(
        &self,
        key: &Key,
        part: Part,
        version: Version,
        plain: &[u8],
    ) -> Result<Vec<u8>, NoRandomness> {
        self.seal(&key.bound(part, version), plain)
    }

    /// Opens this part of what is under a key, which was sealed for this version.
    ///
    /// # Errors
    ///
    /// When it was sealed with another key, or for another place.
    pub fn open_part(
        &self,
        key: &Key,
        part: Part,
        version: Version,
        sealed: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        self.open(&key.bound(part, version), sealed)
    }

    /// Whether the newest key sealed this.
    pub fn is_newest_of(&self, sealed: &[u8]) -> bool {
        sealed.starts_with(&self.newest.head())
    }

    /// Opens a value that was sealed for this place.
    pub fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, OpenError> {
        match sealed.first() {
            Some(&FORMAT) => {}
            Some(_) => return Err(OpenError::UnknownFormat),
            None => return Err(OpenError::Tampered),
        }
        let (head, rest) = sealed
            .split_first_chunk::<HEAD_BYTES>()
            .ok_or(OpenError::Tampered)?;
        let (nonce, rest) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(OpenError::Tampered)?;
        let key = self
            .all()
            .find(|key| key.id == head[1..])
            .ok_or(OpenError::UnknownKey)?;
        let key = key.expand().ok_or(OpenError::Tampered)?;
        let mut text = rest.to_vec();
        let aad = Aad::from(bound(head, place));
        let length = key
            .open_in_place(Nonce::from(nonce), aad, &mut text)
            .map_err(|_| OpenError::Tampered)?
            .len();
        text.truncate(length);
        Ok(text)
    }
}

impl fmt::Debug for SealKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SealKeys({}, {} older)",
            self.newest.name(),
            self.older.len()
        )
    }
}

// === impl SealKey ===

impl SealKey {
    fn new(bytes: [u8; KEY_BYTES]) -> Self {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(b"the id of a bowline seal key");
        context.update(&bytes);
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&context.finish().as_ref()[..ID_BYTES]);
        Self { bytes, id }
    }

    fn name(&self) -> String {
        self.id.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [FORMAT; HEAD_BYTES];
        head[1..].copy_from_slice(&self.id);
        head
    }

    fn expand(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM_SIV, &self.bytes).ok()
    }
}

fn bound(head: &[u8], place: &[u8]) -> Vec<u8> {
    [head, place].concat()
}

#[cfg(test)]
mod tests;
