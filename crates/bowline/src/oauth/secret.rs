//! Text that must not appear in logs.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// An access token, a code, a verifier: neither `Debug` nor `Display` shows it. It serialises as plain text,
/// so only ever into bytes that are sealed.
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Secret(Box<str>);

impl Secret {
    pub(crate) fn new(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    /// 256 random bits.
    pub(crate) fn random() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut random = [0; 32];
        aws_lc_rs::rand::fill(&mut random)?;
        Ok(Self::new(URL_SAFE_NO_PAD.encode(random)))
    }

    /// The text itself.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it is this text, compared in constant time.
    pub(crate) fn is(&self, other: &str) -> bool {
        verify_slices_are_equal(self.0.as_bytes(), other.as_bytes()).is_ok()
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_prints_it_shows_it() {
        let secret = Secret::new("hunter2");
        assert_eq!(
            format!("{secret} {secret:?} {secret:#?}"),
            "(secret) (secret) (secret)"
        );
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn only_the_same_text_is_it() {
        let secret = Secret::new("hunter2");
        assert!(secret.is("hunter2"));
        for other in ["", "hunter", "hunter22", "Hunter2"] {
            assert!(!secret.is(other), "{other}");
        }
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"hunter2\"");
    }
}
