//! Whether the session that the probe opened was known at each of its requests.

use super::findings;
use super::report::Finding;
use super::trouble::Trouble;

/// What the answers so far say.
#[derive(Debug, Default)]
pub(super) struct Known {
    was_known: bool,
    was_denied: bool,
}

impl Known {
    /// Notes an answer, or why there was none.
    pub(super) fn note(&mut self, trouble: Option<&Trouble>) {
        match trouble {
            None => self.was_known = true,
            Some(trouble) => self.was_denied |= trouble.denies_session(),
        }
    }

    /// Whoever knows a session at one request and not at another is more than one.
    pub(super) fn finding(&self) -> Option<Finding> {
        (self.was_known && self.was_denied).then(findings::not_sticky)
    }
}
