//! Maps an upstream error to its row in the table.

use http::StatusCode;

use super::{Reason, Retry};
use crate::peers::PeerError;
use crate::proof::Ran;
use crate::share::ShareOwner;
use crate::upstream::{
    ForwardError, LiveError, ProcessError, SseError, StreamError, UpstreamError,
};
use bowline_egress::{EgressError, ReadError, WireError};

/// The reason for an error. HTTP statuses here are the server's, not those that the client gets.
pub(super) fn reason(error: &UpstreamError) -> Reason {
    match error {
        UpstreamError::NoAnswer(EgressError::OutOfSockets(_)) => Reason::OutOfSockets,
        UpstreamError::NoAnswer(EgressError::Broken(WireError::Http2)) => Reason::UpstreamHttp2,
        UpstreamError::NoAnswer(error) if error.may_have_run() => Reason::OutcomeUnknown,
        UpstreamError::NoAnswer(_) => Reason::UpstreamUnreachable,
        UpstreamError::Unavailable(_) => Reason::UpstreamUnavailable,
        UpstreamError::NotRecovered(_) => Reason::NotRecovered,
        UpstreamError::NotSticky => Reason::NotSticky,
        UpstreamError::Stream(StreamError::TooLarge)
        | UpstreamError::BadBody(ReadError::TooLarge(_)) => Reason::AnswerTooLarge,
        UpstreamError::OutcomeUnknown(_)
        | UpstreamError::Fingerprint(_)
        | UpstreamError::RedirectedAfter(_)
        | UpstreamError::Compressed(..)
        | UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(_)
        | UpstreamError::Stream(_) => Reason::OutcomeUnknown,
        UpstreamError::Cancelled => Reason::Cancelled,
        UpstreamError::SessionLost => Reason::UpstreamSessionLost,
        UpstreamError::Refused(StatusCode::UNAUTHORIZED)
        | UpstreamError::RefusedOverSse(StatusCode::UNAUTHORIZED, _) => {
            Reason::UpstreamUnauthorized
        }
        UpstreamError::Refused(_) | UpstreamError::RefusedOverSse(..) => Reason::UpstreamForbidden,
        UpstreamError::SignIn(_) => Reason::SignInNeeded,
        UpstreamError::Grant(_) => Reason::GrantUnknown,
        UpstreamError::Redirected(_) | UpstreamError::TooManyRedirects(_) => {
            Reason::UpstreamRedirected
        }
        UpstreamError::Declined(declined) => match declined.status {
            StatusCode::UNAUTHORIZED => Reason::UpstreamUnauthorized,
            StatusCode::FORBIDDEN => Reason::UpstreamForbidden,
            _ => Reason::UpstreamDeclined,
        },
        UpstreamError::NotOpenedInTime(_)
        | UpstreamError::NotOpened(StatusCode::SERVICE_UNAVAILABLE) => Reason::UpstreamUnavailable,
        UpstreamError::NotOpened(_) | UpstreamError::NotListened(_) => Reason::UpstreamNotMcp,
        UpstreamError::InitializeTimeout(_)
        | UpstreamError::CallTimeout(_)
        | UpstreamError::NotTaken(_) => Reason::Deadline,
        UpstreamError::BadSessionId(_) | UpstreamError::SeveralSessionIds => {
            Reason::UpstreamSessionId
        }
        UpstreamError::BadInitialize => Reason::UpstreamInitialize,
        UpstreamError::Process(error) => of_process(error),
        UpstreamError::Live(error) => of_live(error),
        UpstreamError::HttpSse(error) => of_sse(error),
        UpstreamError::NeitherTransport(..) => Reason::UpstreamNotMcp,
        UpstreamError::OwnerUnreachable(_) => Reason::OwnerUnreachable,
        UpstreamError::Forward(error) => of_forward(error),
    }
}

fn of_forward(error: &ForwardError) -> Reason {
    let proof = error.proof();
    match (&error.error, proof.ran) {
        (PeerError::Failed(_), Ran::No) => Reason::NotRecovered,
        (_, Ran::No) => Reason::OwnerUnreachable,
        (_, Ran::Unknown | Ran::Yes) => Reason::OutcomeUnknown,
    }
}

fn of_process(error: &ProcessError) -> Reason {
    match error {
        ProcessError::NotStarted(_) | ProcessError::ExitedAtStart(_) => Reason::ProcessFailed,
        ProcessError::Silent(..) => Reason::Deadline,
        ProcessError::TooMany(ShareOwner::Gateway) => Reason::TooManyProcesses,
        ProcessError::TooMany(ShareOwner::Server) => Reason::TooManyProcessesOfServer,
        ProcessError::TooMany(ShareOwner::Caller) => Reason::TooManyProcessesOfCaller,
        ProcessError::StartsTaken => Reason::TooManyStarts,
    }
}

fn of_sse(error: &SseError) -> Reason {
    match error {
        SseError::TooMany(ShareOwner::Gateway) => Reason::TooManyStreams,
        SseError::TooMany(ShareOwner::Server) => Reason::TooManyStreamsOfServer,
        SseError::TooMany(ShareOwner::Caller) => Reason::TooManyStreamsOfCaller,
        SseError::NoEndpoint(_) => Reason::Deadline,
        SseError::EndedEarly(_) => Reason::UpstreamUnavailable,
        SseError::Stray(_) => Reason::NotSticky,
        SseError::NotAStream(_) | SseError::BadEndpoint | SseError::OtherOrigin(_) => {
            Reason::UpstreamNotMcp
        }
    }
}

fn of_live(error: &LiveError) -> Reason {
    match error {
        LiveError::Elsewhere(_) => Reason::SessionElsewhere,
        LiveError::Unsure => Reason::StoreUnavailable,
        LiveError::Ended {
            was_written: true, ..
        }
        | LiveError::Unreadable => Reason::OutcomeUnknown,
        LiveError::Ended {
            was_written: false, ..
        }
        | LiveError::NotRead
        | LiveError::IdTaken => Reason::NotRecovered,
    }
}

/// The retry delay, if it depends on more than the reason.
pub(super) fn retry(error: &UpstreamError) -> Option<Retry> {
    match error {
        UpstreamError::Unavailable(ailment) => Some(Retry::Later(ailment.retry_after())),
        _ => None,
    }
}
