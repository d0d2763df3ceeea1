//! What a failed request tells: whether it ran, and whether the upstream still knows the session.
//!
//! Two questions, answered separately; `exchange/replay` and `exchange/recovery` act on the answers and on nothing else. That a
//! request did not run needs a proof: no byte of it was written, or a refusal was read whole that is not
//! the answer to it.

use bowline_egress::{EgressError, ReadError, WireError};

use super::UpstreamError;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// Whether a request ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ran {
    No,
    Unknown,
    Yes,
}

/// Whether the upstream still knows the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// Nothing speaks against it.
    Alive,
    Lost,
    /// Only asking can tell.
    Unproven,
}

/// What a failure proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) ran: Ran,
    pub(crate) session: SessionState,
}

impl UpstreamError {
    /// What this failure proves.
    pub(crate) fn proof(&self) -> Proof {
        let (ran, session) = table(self);
        Proof { ran, session }
    }
}

fn table(error: &UpstreamError) -> (Ran, SessionState) {
    #[cfg(feature = "planted")]
    match error {
        UpstreamError::NoAnswer(_) if planted::has(Bug::EndIsNotSent) => {
            return (Ran::No, SessionState::Unproven);
        }
        UpstreamError::BadBody(_) if planted::has(Bug::CutIsFinal) => {
            return (Ran::Yes, SessionState::Alive);
        }
        _ => {}
    }
    match error {
        UpstreamError::SessionLost => (Ran::No, SessionState::Lost),
        UpstreamError::Fingerprint(_) => (Ran::Unknown, SessionState::Lost),
        // Trying again at once would not help, and says nothing of the session.
        UpstreamError::NoAnswer(
            EgressError::OutOfSockets(_) | EgressError::Broken(WireError::Http2),
        ) => (Ran::No, SessionState::Alive),
        UpstreamError::Declined(declined) if declined.may_deny_session => {
            (Ran::No, SessionState::Unproven)
        }
        UpstreamError::Declined(_) => (Ran::No, SessionState::Alive),
        UpstreamError::NoAnswer(EgressError::Broken(_)) => (Ran::Unknown, SessionState::Unproven),
        UpstreamError::Compressed(status, _) if !status.is_success() => {
            (Ran::Unknown, SessionState::Unproven)
        }
        UpstreamError::NoAnswer(_) | UpstreamError::Unavailable(_) => {
            (Ran::No, SessionState::Unproven)
        }
        UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(ReadError::Broken(_))
        | UpstreamError::Stream(_) => (Ran::Unknown, SessionState::Unproven),
        // Refused, redirected, out of time, cancelled, or too large: trying again would not change it.
        _ => (Ran::Yes, SessionState::Alive),
    }
}
