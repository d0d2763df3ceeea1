//! What a failed request proves: whether it ran, and whether the upstream still knows the session.
//!
//! These are two separate questions. `exchange/replay` and `exchange/recovery` act on the answers
//! and on nothing else. That a request did not run needs proof: either no byte of it was written,
//! or the server's refusal was read completely and is not the answer to the request.

use bowline_egress::{EgressError, ReadError, WireError};

use super::live::LiveError;
use super::{StreamError, UpstreamError};
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
    /// There is no sign that it is lost.
    Alive,
    Lost,
    /// Only a ping can tell.
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
        UpstreamError::Live(LiveError::Ended { .. }) if planted::has(Bug::ExitIsNotSent) => {
            return (Ran::No, SessionState::Lost);
        }
        UpstreamError::Live(LiveError::Ended { end, .. })
            if end.what() == "stream" && planted::has(Bug::StreamEndIsNotSent) =>
        {
            return (Ran::No, SessionState::Lost);
        }
        UpstreamError::BadBody(_) if planted::has(Bug::CutIsFinal) => {
            return (Ran::Yes, SessionState::Alive);
        }
        _ => {}
    }
    match error {
        UpstreamError::SessionLost => (Ran::No, SessionState::Lost),
        UpstreamError::Fingerprint(_) => (Ran::Unknown, SessionState::Lost),
        // A retry would not help, and the failure says nothing about the session.
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
        UpstreamError::Live(LiveError::Ended { was_written, .. }) => match was_written {
            true => (Ran::Unknown, SessionState::Lost),
            false => (Ran::No, SessionState::Lost),
        },
        UpstreamError::Live(LiveError::IdTaken) => (Ran::No, SessionState::Alive),
        UpstreamError::Live(LiveError::Unreadable) => (Ran::Unknown, SessionState::Unproven),
        UpstreamError::Process(_) | UpstreamError::Live(_) | UpstreamError::HttpSse(_) => {
            (Ran::No, SessionState::Unproven)
        }
        UpstreamError::Forward(error) => {
            let proof = error.proof();
            (proof.ran, proof.session)
        }
        // It came, and would be the same again.
        UpstreamError::Stream(StreamError::TooLarge) => (Ran::Yes, SessionState::Alive),
        UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(ReadError::Broken(_))
        | UpstreamError::Stream(_) => (Ran::Unknown, SessionState::Unproven),
        // Redirected, timed out, cancelled, or too large: a retry would get the same result. What came
        // before `initialize` was answered is no failure of a request.
        UpstreamError::BadBody(ReadError::TooLarge(_))
        | UpstreamError::Compressed(..)
        | UpstreamError::NotRecovered(_)
        | UpstreamError::NotSticky
        | UpstreamError::OutcomeUnknown(_)
        | UpstreamError::Cancelled
        | UpstreamError::Refused(_)
        | UpstreamError::RefusedOverSse(..)
        | UpstreamError::SignIn(_)
        | UpstreamError::Grant(_)
        | UpstreamError::Redirected(_)
        | UpstreamError::RedirectedAfter(_)
        | UpstreamError::TooManyRedirects(_)
        | UpstreamError::NotOpened(_)
        | UpstreamError::NotListened(_)
        | UpstreamError::NotOpenedInTime(_)
        | UpstreamError::CallTimeout(_)
        | UpstreamError::NotTaken(_)
        | UpstreamError::InitializeTimeout(_)
        | UpstreamError::BadSessionId(_)
        | UpstreamError::SeveralSessionIds
        | UpstreamError::BadInitialize
        | UpstreamError::OwnerUnreachable(_)
        | UpstreamError::NeitherTransport(..) => (Ran::Yes, SessionState::Alive),
    }
}
