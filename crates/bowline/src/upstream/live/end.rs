//! How a live thing ended, in words: for the log and for the client.

use std::fmt;

/// How a live thing ended.
#[derive(Debug)]
pub(crate) struct End {
    /// What it was, such as `process`.
    what: &'static str,
    how: Box<str>,
}

impl End {
    pub(in crate::upstream) fn new(what: &'static str, how: impl fmt::Display) -> Self {
        Self {
            what,
            how: how.to_string().into(),
        }
    }

    /// The gateway that had it is gone, and so is it, whatever it was.
    pub(super) fn of_gateway() -> Self {
        Self::new("session", "its gateway is gone")
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.how)
    }
}
