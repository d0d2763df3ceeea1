//! The HTTP status of each refusal: the only place that gives a fault one.

use bowline_wire::message::RawId;
use http::StatusCode;

use crate::fault::{Fault, Reason};

/// The status of the response to a request with this id. A final error about a request that
/// was sent is in the body, because many clients take an error status for the end of the session.
pub(crate) fn of(fault: &Fault, id: Option<RawId<'_>>) -> StatusCode {
    let row = fault.row();
    let declined = fault.declined().map(|declined| declined.status);
    let is_final = row.is_final || declined == Some(StatusCode::NOT_FOUND);
    if is_final && id.is_some() {
        return StatusCode::OK;
    }
    // A client would take a server's 404 for the end of its session, which goes on, and a demand for credentials
    // for Bowline's.
    let is_acted_on = |status: &StatusCode| {
        let acted_on = [
            StatusCode::NOT_FOUND,
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
        ];
        acted_on.contains(status)
    };
    declined
        .filter(|status| !is_acted_on(status))
        .unwrap_or_else(|| of_reason(row.reason))
}

/// The status of a reason, where the request has no id or the error is not final.
pub(crate) fn of_reason(reason: Reason) -> StatusCode {
    match reason {
        Reason::TooManySubscriptions => StatusCode::OK,
        Reason::BodyBroken
        | Reason::NotJson
        | Reason::NotJsonRpc
        | Reason::Batch
        | Reason::ToolNotAllowed
        | Reason::EmptyBatch
        | Reason::InitializeInBatch
        | Reason::BatchTooLarge
        | Reason::SessionRequired
        | Reason::NotInitialized
        | Reason::ProtocolVersion
        | Reason::StrayAnswer
        | Reason::LastEventId
        | Reason::NoState
        | Reason::NoCode
        | Reason::WrongIssuer
        | Reason::NoAnswer
        | Reason::SeveralQuestions
        | Reason::NoSuchMethod
        | Reason::MissingParam
        | Reason::BadCursor
        | Reason::UnknownName => StatusCode::BAD_REQUEST,
        Reason::Unauthorized
        | Reason::UnknownCertificate
        | Reason::CertificateExpired
        | Reason::CertificateNotYetValid
        | Reason::TwoCallers
        | Reason::ApiToken
        | Reason::NoApiToken => StatusCode::UNAUTHORIZED,
        Reason::HostNotAllowed | Reason::OriginNotAllowed | Reason::OtherUser => {
            StatusCode::FORBIDDEN
        }
        Reason::NoSuchPath
        | Reason::NoSuchServer
        | Reason::NoSuchCaller
        | Reason::NoSuchSession
        | Reason::ServerNotNamed
        | Reason::NoMetadata
        | Reason::UnknownSession
        | Reason::NoSuchFlow
        | Reason::NoSuchQuestion
        | Reason::UpstreamSessionLost => StatusCode::NOT_FOUND,
        Reason::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        Reason::NotAcceptable => StatusCode::NOT_ACCEPTABLE,
        Reason::BodyTimeout => StatusCode::REQUEST_TIMEOUT,
        Reason::BodyTooLarge | Reason::InitializeTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Reason::QueryTooLong => StatusCode::URI_TOO_LONG,
        Reason::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        Reason::TooManyVisits => StatusCode::TOO_MANY_REQUESTS,
        Reason::RandomSource => StatusCode::INTERNAL_SERVER_ERROR,
        Reason::UpstreamHttp2
        | Reason::UpstreamNotMcp
        | Reason::UpstreamSessionId
        | Reason::UpstreamInitialize
        | Reason::UpstreamRedirected
        | Reason::UpstreamForbidden
        | Reason::UpstreamUnauthorized
        | Reason::SignInNeeded
        | Reason::UpstreamDeclined
        | Reason::ToolsNotFiltered
        | Reason::NotSticky
        | Reason::OutcomeUnknown
        | Reason::AnswerTooLarge
        | Reason::DeliveryUnknown
        | Reason::MemberLost
        | Reason::RequiredServer
        | Reason::Cancelled => StatusCode::BAD_GATEWAY,
        Reason::TooManyMembers
        | Reason::TooManySessions
        | Reason::TooManySessionsOfCaller
        | Reason::TooManyStreams
        | Reason::TooManyStreamsOfServer
        | Reason::TooManyStreamsOfCaller
        | Reason::TooManyConnections
        | Reason::TooManyConnectionsFromAddress
        | Reason::TooManyConnectionsOfCaller
        | Reason::TooManyBodies
        | Reason::TooManyProcesses
        | Reason::TooManyProcessesOfServer
        | Reason::TooManyProcessesOfCaller
        | Reason::TooManyStarts
        | Reason::Stopping
        | Reason::StoreUnavailable
        | Reason::StoreRefused
        | Reason::OutOfSockets
        | Reason::UpstreamUnreachable
        | Reason::UpstreamUnavailable
        | Reason::ProcessFailed
        | Reason::SessionElsewhere
        | Reason::StreamElsewhere
        | Reason::OwnerUnreachable
        | Reason::GrantUnknown
        | Reason::NotRecovered => StatusCode::SERVICE_UNAVAILABLE,
        Reason::Deadline => StatusCode::GATEWAY_TIMEOUT,
        Reason::Loop => StatusCode::LOOP_DETECTED,
    }
}
