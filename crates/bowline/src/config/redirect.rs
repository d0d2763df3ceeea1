//! The redirect URI of a sign-in, where it is not a page of Bowline's.
//!
//! Used by [`check`](super::check) for the file and by the command line for its flag. Authorization
//! servers compare redirect URIs byte for byte, so one stays exactly as it is written. No problem
//! carries any part of it.

use std::fmt;
use std::str::FromStr;

use super::url::{self, UrlProblem};

/// An absolute URI without user name, password and fragment; `http` only on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectUri(Box<str>);

/// Why a text is not a redirect URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub enum RedirectProblem {
    /// It does not start with a scheme, or nothing follows it.
    NotAbsolute,
    /// Its scheme leads to no page and to no app.
    Scheme,
    /// It has a fragment.
    Fragment,
    /// It has a user name or password in it.
    Userinfo,
    /// It is `http`, and of another machine.
    Plain,
    /// It is `http` or `https`, and its host or port is missing or wrong.
    Host,
    /// It has a character that URIs cannot have, or is far too long.
    Malformed,
}

/// Schemes that browsers and systems keep for themselves: they run or show what follows, open files, or start other
/// programs than the app that waits for the code. Any other may be an app's own; not all have a dot in it, as RFC 8252
/// wants.
const TAKEN_SCHEMES: [&str; 21] = [
    "javascript",
    "vbscript",
    "livescript",
    "data",
    "blob",
    "about",
    "file",
    "filesystem",
    "view-source",
    "jar",
    "resource",
    "chrome",
    "chrome-extension",
    "moz-extension",
    "edge",
    "ftp",
    "ws",
    "wss",
    "mailto",
    "tel",
    "sms",
];

// === impl RedirectUri ===

impl RedirectUri {
    /// The URI as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RedirectUri {
    type Err = RedirectProblem;

    fn from_str(text: &str) -> Result<Self, RedirectProblem> {
        // RFC 3986: `scheme:` and, for most, `//authority`; RFC 8252 has apps use `com.example:/cb`.
        let (scheme, rest) = text.split_once(':').ok_or(RedirectProblem::NotAbsolute)?;
        if !is_scheme(scheme) || rest.is_empty() {
            return Err(RedirectProblem::NotAbsolute);
        }
        let is_taken = |taken: &&str| scheme.eq_ignore_ascii_case(taken);
        if TAKEN_SCHEMES.iter().any(is_taken) {
            return Err(RedirectProblem::Scheme);
        }
        if rest.contains('#') {
            return Err(RedirectProblem::Fragment);
        }
        if rest.strip_prefix("//").is_some_and(has_userinfo) {
            return Err(RedirectProblem::Userinfo);
        }
        if !rest.bytes().all(is_of_uri) {
            return Err(RedirectProblem::Malformed);
        }
        if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
            let url = url::parse(text)?;
            if scheme.eq_ignore_ascii_case("http") && !url::is_loopback(&url) {
                return Err(RedirectProblem::Plain);
            }
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for RedirectUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_scheme(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.bytes().all(allowed)
}

fn has_userinfo(after_slashes: &str) -> bool {
    let authority = after_slashes.split(['/', '?']).next().unwrap_or_default();
    authority.contains('@')
}

fn is_of_uri(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()*+,;=%".contains(&byte)
}

// === impl RedirectProblem ===

impl RedirectProblem {
    /// What is wrong with it.
    pub fn what(self) -> &'static str {
        match self {
            Self::NotAbsolute => "the redirect URI is not absolute",
            Self::Scheme => "the redirect URI leads neither to a page nor to an app",
            Self::Fragment => "the redirect URI has a fragment, which authorization servers refuse",
            Self::Userinfo => "the redirect URI has a user name or password in it",
            Self::Plain => {
                "the redirect URI is http and not on this machine, so others could read the code"
            }
            Self::Host => "the redirect URI has no host, or a port that is not from 1 to 65535",
            Self::Malformed => {
                "the redirect URI has a character that URIs cannot have, or is too long"
            }
        }
    }

    /// What to do about it.
    pub fn help(self) -> &'static str {
        match self {
            Self::NotAbsolute | Self::Host | Self::Scheme => {
                "write it in full, such as `https://app.example/cb` or `myapp://cb`"
            }
            Self::Fragment => "remove the `#` and what follows it",
            Self::Userinfo => "remove it; everybody who signs in sees the redirect URI",
            Self::Plain => "write `https://`, or `http://` only with 127.0.0.1, [::1] or localhost",
            Self::Malformed => "percent-encode spaces and other special characters",
        }
    }
}

impl From<UrlProblem> for RedirectProblem {
    fn from(problem: UrlProblem) -> Self {
        match problem {
            UrlProblem::NotAbsolute | UrlProblem::Scheme | UrlProblem::PartNotAbsolute => {
                Self::NotAbsolute
            }
            UrlProblem::NoHost | UrlProblem::Port => Self::Host,
            UrlProblem::Userinfo => Self::Userinfo,
            UrlProblem::Fragment => Self::Fragment,
            UrlProblem::Malformed | UrlProblem::Twice => Self::Malformed,
        }
    }
}
