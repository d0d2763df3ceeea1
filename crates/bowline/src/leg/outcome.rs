//! What a failed request tells: whether it ran, and whether the upstream still knows the session.
//!
//! Two questions, answered separately; `replay` and `mend` act on the answers and on nothing else. That a
//! request did not run needs a proof: no byte of it was written, or a refusal was read whole that is not
//! the answer to it.

use crate::body::ReadError;
use crate::egress::{EgressError, WireError};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::upstream::UpstreamError;

/// Whether a request ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    No,
    Unknown,
    Yes,
}

/// Whether the upstream still knows the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Nothing speaks against it.
    Alive,
    Lost,
    /// Only asking can tell.
    Unproven,
}

/// Both answers.
pub(super) fn outcome(error: &UpstreamError) -> (Ran, Known) {
    #[cfg(feature = "planted")]
    match error {
        UpstreamError::NoAnswer(_) if planted::has(Bug::EndIsNotSent) => {
            return (Ran::No, Known::Unproven);
        }
        UpstreamError::BadBody(_) if planted::has(Bug::CutIsFinal) => {
            return (Ran::Yes, Known::Alive);
        }
        _ => {}
    }
    match error {
        UpstreamError::SessionLost => (Ran::No, Known::Lost),
        UpstreamError::Fingerprint(_) => (Ran::Unknown, Known::Lost),
        // Trying again at once would not help, and says nothing of the session.
        UpstreamError::NoAnswer(
            EgressError::OutOfSockets(_) | EgressError::Broken(WireError::Http2),
        ) => (Ran::No, Known::Alive),
        UpstreamError::Declined(declined) if declined.may_deny_session => {
            (Ran::No, Known::Unproven)
        }
        UpstreamError::Declined(_) => (Ran::No, Known::Alive),
        UpstreamError::NoAnswer(EgressError::Broken(_)) => (Ran::Unknown, Known::Unproven),
        UpstreamError::Compressed(status, _) if !status.is_success() => {
            (Ran::Unknown, Known::Unproven)
        }
        UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => (Ran::No, Known::Unproven),
        UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(ReadError::Broken(_))
        | UpstreamError::Stream(_) => (Ran::Unknown, Known::Unproven),
        // Refused, redirected, out of time, cancelled, or too large: trying again would not change it.
        _ => (Ran::Yes, Known::Alive),
    }
}
