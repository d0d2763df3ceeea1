//! Who speaks: a name of the configuration and the key or certificate that it has, or whoever is there.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_wire::certificate::Validity;

use crate::config::{self, CallerName, CertificateHash};

/// Who speaks. Sessions, grants and flows belong to one: whoever is given the name later, with another
/// key, is somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Caller {
    /// Whoever can reach a listener that asks for no keys.
    Local,
    /// A caller of the configuration, by its name and its key. One without a key speaks for nobody: the
    /// name is not configured.
    Named(CallerName, Option<KeyPrint>),
}

/// A certificate that a client showed, with the proof that it has the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    pub(crate) hash: CertificateHash,
    pub(crate) validity: Validity,
}

/// A fingerprint of a caller's key, or of its first certificate. It tells the keys of one name apart, and nothing of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct KeyPrint([u8; Self::BYTES]);

/// A text is no fingerprint.
#[derive(Debug)]
pub(crate) struct NotAKeyPrint;

// === impl Caller ===

impl Caller {
    /// The caller's name in the configuration, if it has one.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Local => None,
            Self::Named(name, _) => Some(name.as_ref()),
        }
    }

    /// The fingerprint of its key, if it has one.
    pub(crate) fn key(&self) -> Option<KeyPrint> {
        match self {
            Self::Local => None,
            Self::Named(_, key) => *key,
        }
    }
}

// === impl ClientCertificate ===

impl ClientCertificate {
    /// The certificate in this DER; `None` if it is none.
    pub(crate) fn of(der: &[u8]) -> Option<Self> {
        Some(Self {
            hash: CertificateHash::of(der),
            validity: Validity::of(der)?,
        })
    }
}

// === impl KeyPrint ===

impl KeyPrint {
    /// So much of a hash tells the keys of one name apart.
    const BYTES: usize = 12;

    /// A hash of what a caller is known by, if it is known by anything.
    pub(crate) fn of_caller(caller: &config::Caller) -> Option<Self> {
        caller.lasting().map(Self::of)
    }

    /// A hash of the hash of a key, or of a certificate.
    fn of(hash: &[u8; 32]) -> Self {
        let hash = digest::digest(&digest::SHA256, hash);
        let mut print = [0; Self::BYTES];
        print.copy_from_slice(&hash.as_ref()[..Self::BYTES]);
        Self(print)
    }
}

impl fmt::Display for KeyPrint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for KeyPrint {
    type Err = NotAKeyPrint;

    fn from_str(text: &str) -> Result<Self, NotAKeyPrint> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let print = bytes.and_then(|bytes| bytes.try_into().ok());
        print.map(Self).ok_or(NotAKeyPrint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyHash;

    #[test]
    fn a_fingerprint_is_read_as_it_was_written() {
        let print = KeyPrint::of(&KeyHash::of(b"a key").0);
        let written = print.to_string();
        assert_eq!(written.parse::<KeyPrint>().unwrap(), print);
        for other in ["", "a", &written[1..], &format!("{written}AAAA"), "ä"] {
            assert!(other.parse::<KeyPrint>().is_err(), "{other}");
        }
    }
}
