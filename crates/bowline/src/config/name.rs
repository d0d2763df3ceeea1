//! The name of a server: the part of the path by which clients choose it.
//!
//! Names go into paths, metric labels and log lines, so they are short and need no escaping
//! anywhere. A leading dot is refused because `.` and `..` mean something else in a path.

use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The longest name, in characters.
const MAX: usize = 64;

/// The name of a server: 1 to 64 ASCII letters, digits, `-`, `_` or `.`, not starting with `.`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Why a text is not the name of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}; {}", self.what(), self.help())]
pub enum NameProblem {
    /// It has no characters.
    Empty,
    /// It has more than 64 characters.
    Long,
    /// It starts with a dot.
    LeadingDot,
    /// It has a character that names cannot have.
    Character,
}

// === impl ServerName ===

impl FromStr for ServerName {
    type Err = NameProblem;

    fn from_str(text: &str) -> Result<Self, NameProblem> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if text.is_empty() {
            Err(NameProblem::Empty)
        } else if !text.bytes().all(allowed) {
            Err(NameProblem::Character)
        } else if text.starts_with('.') {
            Err(NameProblem::LeadingDot)
        } else if text.len() > MAX {
            Err(NameProblem::Long)
        } else {
            Ok(Self(text.into()))
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl AsRef<str> for ServerName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ServerName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

// === impl NameProblem ===

impl NameProblem {
    /// What is wrong with the name.
    pub fn what(self) -> &'static str {
        match self {
            Self::Empty => "the server's name is empty",
            Self::Long => "the server's name is longer than 64 characters",
            Self::LeadingDot => "the server's name starts with a dot",
            Self::Character => "the server's name has a character that names cannot have",
        }
    }

    /// What to do about it.
    pub fn help(self) -> &'static str {
        match self {
            Self::Empty => "give the server a name, such as `files`",
            Self::Long => "shorten it to 64 characters or fewer",
            Self::LeadingDot => "start it with a letter, a digit, `-` or `_`",
            Self::Character => "use only ASCII letters, digits, `-`, `_` and `.`",
        }
    }
}
