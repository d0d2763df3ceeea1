//! Who may use the gateway, and by what they are known: a key, certificates, or both.
//!
//! Neither is kept: of each there is a hash.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};

use super::ServerName;

/// Somebody who may use the gateway: whoever shows the key, or one of the certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// What the caller's key hashes to, if it has one.
    pub key: Option<KeyHash>,
    /// What the caller's certificates hash to. Where there is no key, the first one is who it is.
    pub certificates: Vec<CertificateHash>,
    /// The servers that the caller may use; `None` for all.
    pub servers: Option<Vec<ServerName>>,
}

/// The SHA-256 hash of a bearer key.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct KeyHash(pub [u8; 32]);

/// The SHA-256 hash of a client's certificate (DER), its fingerprint: no secret, because the certificate is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CertificateHash(pub [u8; 32]);

/// A text is no SHA-256 hash.
#[derive(Debug, thiserror::Error)]
#[error("not a SHA-256 hash of 64 hexadecimal digits")]
pub struct NotAHash;

/// A caller's name, under the same rules as a server's.
pub type CallerName = ServerName;

// === impl Caller ===

impl Caller {
    /// One that is known by a key.
    pub fn with_key(key: KeyHash) -> Self {
        Self {
            key: Some(key),
            ..Self::default()
        }
    }

    /// One that is known by certificates.
    pub fn with_certificates(certificates: Vec<CertificateHash>) -> Self {
        Self {
            certificates,
            ..Self::default()
        }
    }

    /// What its sessions and sign-ins belong to: the key or, if there is none, the first certificate. So
    /// certificates can be renewed without ending sessions.
    pub(crate) fn lasting(&self) -> Option<&[u8; 32]> {
        let key = self.key.as_ref().map(|key| &key.0);
        key.or_else(|| self.certificates.first().map(|hash| &hash.0))
    }
}

// === impl KeyHash ===

impl KeyHash {
    /// Whether this is the hash of that key, in a time that tells nothing of either.
    pub fn is_of(&self, key: &[u8]) -> bool {
        verify_slices_are_equal(&self.0, &Self::of(key).0).is_ok()
    }

    /// The hash of this key.
    pub fn of(key: &[u8]) -> Self {
        Self(sha256(key))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(…)")
    }
}

impl FromStr for KeyHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        hexadecimal(text.as_bytes()).map(Self).ok_or(NotAHash)
    }
}

// === impl CertificateHash ===

impl CertificateHash {
    /// The hash of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Self {
        Self(sha256(certificate))
    }
}

impl fmt::Display for CertificateHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for CertificateHash {
    type Err = NotAHash;

    /// As programs print it: `openssl` writes colons between the bytes.
    fn from_str(text: &str) -> Result<Self, NotAHash> {
        let is_spaced = text.len() == 32 * 3 - 1;
        let digits: Vec<u8> =
            match is_spaced && text.bytes().skip(2).step_by(3).all(|it| it == b':') {
                true => text.bytes().filter(|byte| *byte != b':').collect(),
                false => text.bytes().collect(),
            };
        hexadecimal(&digits).map(Self).ok_or(NotAHash)
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

fn hexadecimal(text: &[u8]) -> Option<[u8; 32]> {
    let (digits, rest) = text.as_chunks::<2>();
    let mut bytes = [0; 32];
    if digits.len() != bytes.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(digits) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificates_hash_is_read_as_programs_print_it() {
        let hash = CertificateHash::of(b"certificate");
        let plain = hash.to_string();
        let pairs: Vec<_> = (0..32)
            .map(|at| plain[at * 2..][..2].to_uppercase())
            .collect();
        let colons = pairs.join(":");
        for text in [
            &plain,
            &plain.to_uppercase(),
            &colons,
            &colons.to_lowercase(),
        ] {
            assert_eq!(text.parse::<CertificateHash>().unwrap(), hash, "{text}");
        }
        let fingerprint = format!("sha256 Fingerprint={colons}");
        for other in [
            "",
            &plain[1..],
            &colons[1..],
            &colons.replace(':', "-"),
            &fingerprint,
        ] {
            assert!(other.parse::<CertificateHash>().is_err(), "{other}");
        }
    }

    #[test]
    fn a_key_outlasts_certificates() {
        let (key, hash) = (KeyHash::of(b"key"), CertificateHash::of(b"one"));
        let mut caller = Caller::with_certificates(vec![hash, CertificateHash::of(b"two")]);
        assert_eq!(caller.lasting(), Some(&hash.0));
        caller.key = Some(key.clone());
        assert_eq!(caller.lasting(), Some(&key.0));
    }
}
