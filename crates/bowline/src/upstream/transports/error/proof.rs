//! The table of proofs: what each error of an upstream proves. It names every variant, also of the enums inside, so that
//! a new one is judged before it compiles.

use bowline_egress::{EgressError, ReadError, WireError};

use super::{LiveError, ProcessError, SseError, StreamError, UpstreamError};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::proof::{Proof, Ran, SessionState};

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
        UpstreamError::NoAnswer(error) => of_egress(error),
        UpstreamError::Unavailable(_) => (Ran::No, SessionState::Unproven),
        UpstreamError::Declined(declined) => match declined.may_deny_session {
            true => (Ran::No, SessionState::Unproven),
            false => (Ran::No, SessionState::Alive),
        },
        UpstreamError::Process(error) => of_process(error),
        UpstreamError::Live(error) => of_live(error),
        UpstreamError::HttpSse(error) => of_http_sse(error),
        UpstreamError::Forward(error) => {
            let proof = error.proof();
            (proof.ran, proof.session)
        }
        UpstreamError::Stream(error) => of_stream(error),
        UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(ReadError::Broken(_)) => (Ran::Unknown, SessionState::Unproven),
        UpstreamError::Compressed(status, _) if !status.is_success() => {
            (Ran::Unknown, SessionState::Unproven)
        }
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

fn of_egress(error: &EgressError) -> (Ran, SessionState) {
    match error {
        // A retry would not help, and the failure says nothing about the session.
        EgressError::OutOfSockets(_) | EgressError::Broken(WireError::Http2) => {
            (Ran::No, SessionState::Alive)
        }
        EgressError::Broken(
            WireError::Io(_) | WireError::Closed | WireError::Withheld | WireError::Malformed(_),
        ) => (Ran::Unknown, SessionState::Unproven),
        EgressError::Connect(_)
        | EgressError::ConnectTimeout(_)
        | EgressError::Tls(_)
        | EgressError::NotSent(_) => (Ran::No, SessionState::Unproven),
    }
}

fn of_process(error: &ProcessError) -> (Ran, SessionState) {
    match error {
        ProcessError::NotStarted(_)
        | ProcessError::ExitedAtStart(_)
        | ProcessError::Silent(..)
        | ProcessError::TooMany(_)
        | ProcessError::StartsTaken => (Ran::No, SessionState::Unproven),
    }
}

fn of_live(error: &LiveError) -> (Ran, SessionState) {
    match error {
        LiveError::Ended {
            was_written: true, ..
        } => (Ran::Unknown, SessionState::Lost),
        LiveError::Ended {
            was_written: false, ..
        } => (Ran::No, SessionState::Lost),
        LiveError::IdTaken => (Ran::No, SessionState::Alive),
        LiveError::Unreadable => (Ran::Unknown, SessionState::Unproven),
        LiveError::Elsewhere(_) | LiveError::Unsure | LiveError::NotRead => {
            (Ran::No, SessionState::Unproven)
        }
    }
}

fn of_http_sse(error: &SseError) -> (Ran, SessionState) {
    match error {
        SseError::NotAStream(_)
        | SseError::TooMany(_)
        | SseError::NoEndpoint(_)
        | SseError::EndedEarly(_)
        | SseError::BadEndpoint
        | SseError::OtherOrigin(_)
        | SseError::Stray(_) => (Ran::No, SessionState::Unproven),
    }
}

fn of_stream(error: &StreamError) -> (Ran, SessionState) {
    match error {
        // It came, and would be the same again.
        StreamError::TooLarge => (Ran::Yes, SessionState::Alive),
        StreamError::Broken(_)
        | StreamError::Cut
        | StreamError::Batch(_)
        | StreamError::Seal
        | StreamError::NoAnswer
        | StreamError::TooMuchBefore(_)
        | StreamError::AnotherId
        | StreamError::NotOpened
        | StreamError::CallTimeout
        | StreamError::Fingerprint
        | StreamError::Ended(_)
        | StreamError::Unreadable
        | StreamError::Forward(_)
        | StreamError::NotTaken(_)
        | StreamError::Cancelled => (Ran::Unknown, SessionState::Unproven),
    }
}
