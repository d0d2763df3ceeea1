//! Every way in which a request is refused or fails, and how the client hears of it.
//!
//! This is the one table: HTTP status, JSON-RPC code, the reason's name, whether trying again may
//! help. No other place turns an error into a status.

use std::fmt::Write as _;

use bowline_wire::message::Malformed;
use bowline_wire::version;
use http::StatusCode;
use thiserror::Error;

use crate::config::ServerName;
use crate::egress::{EgressError, WireError};
use crate::oauth::PendingError;
use crate::session::{TooMuchSaid, Unsure};
use crate::share::Holder;
use crate::store::{Refusal, StoreError};
use crate::upstream::{Declined, UpstreamError};

/// JSON-RPC error codes: the protocol's own, and Bowline's outside the reserved range.
pub(crate) mod codes {
    pub(crate) const PARSE_ERROR: i64 = -32700;
    pub(crate) const INVALID_REQUEST: i64 = -32600;
    pub(crate) const INTERNAL_ERROR: i64 = -32603;
    /// Only ever with 404, in the session era.
    pub(crate) const SESSION_NOT_FOUND: i64 = -32001;
    pub(crate) const OUTCOME_UNKNOWN: i64 = -31001;
    pub(crate) const UPSTREAM_UNAVAILABLE: i64 = -31002;
    pub(crate) const SIGN_IN_NEEDED: i64 = -31003;
    /// As in the Language Server Protocol; MCP has none, because nobody waits for it.
    pub(crate) const CANCELLED: i64 = -32800;
    pub(crate) const DEADLINE: i64 = -31004;
    pub(crate) const OVERLOADED: i64 = -31005;
}

/// Why a request was not served.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error(
        "this Host is not served here; the gateway answers to its addresses, and to the names in `hosts` and `public_url`"
    )]
    Host,
    #[error("pages of this Origin may not use this gateway")]
    Origin,
    #[error(
        "this gateway asks for a key: send `Authorization: Bearer KEY`, with the key of one of its [callers]"
    )]
    Unauthorized,
    #[error(
        "the API asks for its token: send `Authorization: Bearer TOKEN`, with BOWLINE_API_TOKEN"
    )]
    ApiToken,
    #[error(
        "this part of the API asks for its token, and this gateway has none: set BOWLINE_API_TOKEN"
    )]
    NoApiToken,
    #[error("the query is longer than {limit} bytes")]
    QueryTooLong { limit: usize },
    #[error("nothing is served at this path; sessions live at /mcp/{{server}}")]
    NoSuchPath,
    #[error(
        "no server of this name is configured; the path is /mcp/{{server}}, with a name from [servers]"
    )]
    NoSuchServer,
    #[error("the query must name one of the callers")]
    NoSuchCaller,
    #[error("no session has this hash, or it has ended; GET /api/sessions lists them")]
    NoSuchSession,
    #[error("several servers are configured, so the path must name one: /mcp/{{server}}")]
    ServerNotNamed,
    #[error(
        "there is no authorization metadata here: no authorization server issues tokens for this gateway"
    )]
    NoMetadata,
    #[error("this method is not served here; use one of {allow}")]
    Method { allow: &'static str },
    #[error(
        "the answer may be JSON or an event stream, so Accept must allow both application/json and text/event-stream"
    )]
    AcceptForPost,
    #[error("the answer is an event stream, so Accept must allow text/event-stream")]
    AcceptForGet,
    #[error("the body must be JSON: send Content-Type: application/json")]
    ContentType,
    #[error("the body is larger than {limit} bytes ([limits] body_bytes)")]
    BodyTooLarge { limit: usize },
    #[error("the body did not arrive in time")]
    BodyTimeout,
    #[error("the body broke off")]
    BodyBroken,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("the batch is empty: there is nothing to answer")]
    EmptyBatch,
    #[error("`initialize` must come alone, not in a batch")]
    InitializeInBatch,
    #[error(
        "`initialize`, its query and its forwarded headers are kept with the session, and are larger than {limit} bytes together"
    )]
    InitializeTooLarge { limit: usize },
    #[error("the batch has more than {limit} messages")]
    BatchTooLarge { limit: usize },
    #[error(
        "Mcp-Session-Id is missing: send `initialize` first and repeat the id that its answer carries"
    )]
    SessionRequired,
    #[error("Session not found")]
    UnknownSession,
    #[error("MCP-Protocol-Version is not one that this gateway speaks ({})", version::SUPPORTED.join(", "))]
    ProtocolVersion,
    #[error("this answers no request that this session was asked")]
    StrayAnswer,
    #[error("Last-Event-ID is not an id that this session was given")]
    LastEventId,
    #[error("too many sessions{} ([limits] sessions); try again later", held_by(*.0))]
    TooManySessions(Holder),
    #[error("too many streams{} ([limits] streams); try again later", held_by(*.0))]
    TooManyStreams(Holder),
    #[error("too many connections ([limits] connections); try again later")]
    TooManyConnections,
    #[error(
        "too many connections from this address ([limits] connections_per_address); try again later"
    )]
    TooManyConnectionsFromAddress,
    #[error("too many connections of this caller ([limits] connections); try again later")]
    TooManyConnectionsOfCaller,
    #[error(
        "too much is held of bodies that have not come to their end ([limits] body_bytes); try again later"
    )]
    TooManyBodies,
    #[error(transparent)]
    TooManySubscriptions(#[from] TooMuchSaid),
    #[error("too many visits; try again later")]
    TooManyVisits,
    #[error("the query has no `state`, or more than one")]
    NoState,
    #[error("the query has neither `code` nor `error`, or more than one")]
    NoCode,
    #[error("no sign-in waits for this state")]
    NoSuchFlow,
    #[error("this answer is not from the authorization server that was asked")]
    WrongIssuer,
    #[error(
        "the body must be {{\"action\": \"accept\" or \"decline\" or \"cancel\", \"content\": {{…}}, \"elicitation_id\": \"…\"}}"
    )]
    NoAnswer,
    #[error("no question of this id waits for an answer in this session")]
    NoSuchQuestion,
    #[error(
        "server \"{server}\": its address leads back to this gateway; configure the address of the server itself"
    )]
    Loop { server: ServerName },
    #[error("the gateway is stopping; another one may serve you")]
    Stopping,
    #[error("the gateway's random source failed")]
    Random,
    #[error("the gateway's store of sessions cannot tell: {0}")]
    Store(Box<str>),
    #[error("the gateway's store of sessions refused: {0}; try again later")]
    StoreRefused(Refusal),
    #[error("server \"{server}\": {error}")]
    Upstream {
        server: ServerName,
        generation: u32,
        error: UpstreamError,
    },
}

/// How a fault is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Telling {
    pub(crate) status: StatusCode,
    pub(crate) code: i64,
    /// The reason's name, in logs and in `data.reason`.
    pub(crate) reason: &'static str,
    /// Seconds after which trying again may help.
    pub(crate) retry_after: Option<u32>,
    /// It is the last word about a request that was sent. Clients know an error of one request by its
    /// body; many take an error status for the end of the session, or show nothing but the status.
    pub(crate) is_final: bool,
}

impl Fault {
    /// Nothing can be said of a session now.
    pub(crate) fn unsure(why: &Unsure) -> Self {
        match why {
            // What the store itself said is for the operator.
            Unsure::Store(StoreError::Refused { why, .. }) => Self::StoreRefused(*why),
            _ => Self::Store(why.to_string().into()),
        }
    }

    /// The server's own refusal, if it is one.
    pub(crate) fn declined(&self) -> Option<&Declined> {
        match self {
            Self::Upstream {
                error: UpstreamError::Declined(declined),
                ..
            } => Some(declined),
            _ => None,
        }
    }

    /// The row of this fault.
    pub(crate) fn telling(&self) -> Telling {
        use codes::{INTERNAL_ERROR, INVALID_REQUEST, OVERLOADED, PARSE_ERROR, SESSION_NOT_FOUND};
        let row = |status, code, reason| Telling {
            status,
            code,
            reason,
            retry_after: None,
            is_final: false,
        };
        let overloaded = |reason| Telling {
            retry_after: Some(5),
            ..row(StatusCode::SERVICE_UNAVAILABLE, OVERLOADED, reason)
        };
        match self {
            Self::Host => row(StatusCode::FORBIDDEN, INVALID_REQUEST, "host_not_allowed"),
            Self::Origin => row(StatusCode::FORBIDDEN, INVALID_REQUEST, "origin_not_allowed"),
            Self::Unauthorized => row(StatusCode::UNAUTHORIZED, INVALID_REQUEST, "unauthorized"),
            Self::ApiToken => row(StatusCode::UNAUTHORIZED, INVALID_REQUEST, "api_token"),
            Self::NoApiToken => row(StatusCode::UNAUTHORIZED, INVALID_REQUEST, "no_api_token"),
            Self::QueryTooLong { .. } => {
                row(StatusCode::URI_TOO_LONG, INVALID_REQUEST, "query_too_long")
            }
            Self::NoSuchPath => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_path"),
            Self::NoSuchSession => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_session"),
            Self::NoSuchServer => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_server"),
            Self::NoSuchCaller => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_caller"),
            Self::ServerNotNamed => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "server_not_named"),
            Self::NoMetadata => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_metadata"),
            Self::Method { .. } => row(
                StatusCode::METHOD_NOT_ALLOWED,
                INVALID_REQUEST,
                "method_not_allowed",
            ),
            Self::AcceptForPost | Self::AcceptForGet => row(
                StatusCode::NOT_ACCEPTABLE,
                INVALID_REQUEST,
                "not_acceptable",
            ),
            Self::ContentType => row(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                INVALID_REQUEST,
                "unsupported_media_type",
            ),
            Self::BodyTooLarge { .. } => row(
                StatusCode::PAYLOAD_TOO_LARGE,
                INVALID_REQUEST,
                "body_too_large",
            ),
            Self::BodyTimeout => row(StatusCode::REQUEST_TIMEOUT, INVALID_REQUEST, "body_timeout"),
            Self::BodyBroken => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "body_broken"),
            Self::Malformed(Malformed::NotJson(_)) => {
                row(StatusCode::BAD_REQUEST, PARSE_ERROR, "not_json")
            }
            Self::Malformed(Malformed::Batch) => {
                row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "batch")
            }
            Self::Malformed(Malformed::NotJsonRpc(_)) => {
                row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "not_json_rpc")
            }
            Self::EmptyBatch => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "empty_batch"),
            Self::InitializeInBatch => row(
                StatusCode::BAD_REQUEST,
                INVALID_REQUEST,
                "initialize_in_batch",
            ),
            Self::InitializeTooLarge { .. } => row(
                StatusCode::PAYLOAD_TOO_LARGE,
                INVALID_REQUEST,
                "initialize_too_large",
            ),
            Self::BatchTooLarge { .. } => {
                row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "batch_too_large")
            }
            Self::SessionRequired => {
                row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "session_required")
            }
            Self::UnknownSession => {
                row(StatusCode::NOT_FOUND, SESSION_NOT_FOUND, "unknown_session")
            }
            Self::ProtocolVersion => {
                row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "protocol_version")
            }
            Self::StrayAnswer => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "stray_answer"),
            Self::LastEventId => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "last_event_id"),
            Self::TooManySessions(Holder::Caller) => overloaded("too_many_sessions_of_caller"),
            Self::TooManySessions(_) => overloaded("too_many_sessions"),
            Self::TooManyStreams(Holder::Gateway) => overloaded("too_many_streams"),
            Self::TooManyStreams(Holder::Server) => overloaded("too_many_streams_of_server"),
            Self::TooManyStreams(Holder::Caller) => overloaded("too_many_streams_of_caller"),
            Self::TooManyConnections => overloaded("too_many_connections"),
            Self::TooManyConnectionsFromAddress => overloaded("too_many_connections_from_address"),
            Self::TooManyConnectionsOfCaller => overloaded("too_many_connections_of_caller"),
            Self::TooManyBodies => overloaded("too_many_bodies"),
            // In band: the client asked for something, and that is the answer.
            Self::TooManySubscriptions(_) => {
                row(StatusCode::OK, OVERLOADED, "too_many_subscriptions")
            }
            Self::TooManyVisits => Telling {
                retry_after: Some(1),
                ..row(StatusCode::TOO_MANY_REQUESTS, OVERLOADED, "too_many_visits")
            },
            Self::NoState => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "no_state"),
            Self::NoCode => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "no_code"),
            Self::NoSuchFlow => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_flow"),
            Self::WrongIssuer => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "wrong_issuer"),
            Self::NoAnswer => row(StatusCode::BAD_REQUEST, INVALID_REQUEST, "no_answer"),
            Self::NoSuchQuestion => row(StatusCode::NOT_FOUND, INVALID_REQUEST, "no_such_question"),
            Self::Loop { .. } => row(
                StatusCode::LOOP_DETECTED,
                codes::UPSTREAM_UNAVAILABLE,
                "loop",
            ),
            Self::Stopping => overloaded("stopping"),
            Self::Random => row(
                StatusCode::INTERNAL_SERVER_ERROR,
                INTERNAL_ERROR,
                "random_source",
            ),
            Self::Store(_) => Telling {
                retry_after: Some(1),
                ..row(
                    StatusCode::SERVICE_UNAVAILABLE,
                    INTERNAL_ERROR,
                    "store_unavailable",
                )
            },
            Self::StoreRefused(_) => Telling {
                retry_after: Some(5),
                ..row(
                    StatusCode::SERVICE_UNAVAILABLE,
                    INTERNAL_ERROR,
                    "store_refused",
                )
            },
            Self::Upstream { error, .. } => upstream_telling(error),
        }
    }

    /// The body: a JSON-RPC error that echoes the request's id (JSON text), or has none.
    pub(crate) fn body(&self, id: Option<&str>) -> String {
        let telling = self.telling();
        let mut body = String::from(r#"{"jsonrpc":"2.0","#);
        if let Some(id) = id {
            // Writing to a String cannot fail.
            _ = write!(body, r#""id":{id},"#);
        }
        let message = serde_json::Value::from(self.to_string());
        _ = write!(
            body,
            r#""error":{{"code":{},"message":{message},"data":{{"reason":"{}""#,
            telling.code, telling.reason
        );
        if let Self::Upstream {
            server, generation, ..
        } = self
        {
            _ = write!(body, r#","server":"{server}","generation":{generation}"#);
        }
        body.push_str("}}}");
        body
    }
}

/// What a store says is for the operator: whoever comes to a page, or brings an answer, may be anybody.
impl From<PendingError> for Fault {
    fn from(error: PendingError) -> Self {
        tracing::warn!(%error, "a sign-in cannot be looked up or written down");
        match error {
            PendingError::Store(StoreError::Refused { why, .. }) => Self::StoreRefused(why),
            PendingError::NoRandomness(_) => Self::Random,
            _ => Self::Store("it cannot be asked about sign-ins now".into()),
        }
    }
}

fn held_by(holder: Holder) -> &'static str {
    match holder {
        Holder::Gateway => "",
        Holder::Server => " of this server: its share is used up",
        Holder::Caller => " of this caller: its share is used up",
    }
}

// === impl Telling ===

impl Telling {
    /// The status of the response to a message: what has an id is answered in its body.
    pub(crate) fn status_for(&self, id: Option<&str>) -> StatusCode {
        match self.is_final && id.is_some() {
            true => StatusCode::OK,
            false => self.status,
        }
    }
}

fn upstream_telling(error: &UpstreamError) -> Telling {
    use codes::{OUTCOME_UNKNOWN, SIGN_IN_NEEDED, UPSTREAM_UNAVAILABLE};
    let bad_gateway = |code, reason| Telling {
        status: StatusCode::BAD_GATEWAY,
        code,
        reason,
        retry_after: None,
        is_final: matches!(
            code,
            OUTCOME_UNKNOWN | SIGN_IN_NEEDED | codes::DEADLINE | codes::CANCELLED
        ),
    };
    match error {
        UpstreamError::NoAnswer(EgressError::OutOfSockets(_)) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(1),
            ..bad_gateway(codes::OVERLOADED, "out_of_sockets")
        },
        UpstreamError::NoAnswer(EgressError::Broken(WireError::Http2)) => {
            bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_http2")
        }
        UpstreamError::NoAnswer(error) if error.may_have_run() => {
            bad_gateway(OUTCOME_UNKNOWN, "outcome_unknown")
        }
        UpstreamError::NoAnswer(_) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(5),
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_unreachable")
        },
        UpstreamError::Unavailable(ailment) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(ailment.retry_after()),
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_unavailable")
        },
        UpstreamError::NotMended(_) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(5),
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "not_recovered")
        },
        UpstreamError::OutcomeUnknown(_)
        | UpstreamError::Fingerprint(_)
        | UpstreamError::RedirectedAfter(_)
        | UpstreamError::Compressed(..) => bad_gateway(OUTCOME_UNKNOWN, "outcome_unknown"),
        UpstreamError::Cancelled => bad_gateway(codes::CANCELLED, "cancelled"),
        UpstreamError::SessionLost => Telling {
            status: StatusCode::NOT_FOUND,
            ..bad_gateway(codes::SESSION_NOT_FOUND, "upstream_session_lost")
        },
        UpstreamError::Refused(StatusCode::UNAUTHORIZED) => {
            bad_gateway(SIGN_IN_NEEDED, "upstream_unauthorized")
        }
        UpstreamError::SignIn(_) => bad_gateway(SIGN_IN_NEEDED, "sign_in_needed"),
        UpstreamError::Grant(_) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(5),
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "grant_unknown")
        },
        UpstreamError::Refused(_) => bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_forbidden"),
        UpstreamError::Redirected(_) | UpstreamError::TooManyRedirects(_) => {
            bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_redirected")
        }
        // A client would take a 404 for the end of its session, which lives.
        UpstreamError::Declined(declined) if declined.status == StatusCode::NOT_FOUND => Telling {
            is_final: true,
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_declined")
        },
        UpstreamError::Declined(declined) => Telling {
            status: declined.status,
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_declined")
        },
        // No Retry-After where the outcome is unknown: it would invite a second run.
        UpstreamError::NotMcp(_)
        | UpstreamError::AnotherId
        | UpstreamError::BadBody(_)
        | UpstreamError::Stream(_) => bad_gateway(OUTCOME_UNKNOWN, "outcome_unknown"),
        UpstreamError::NotOpenedInTime(_)
        | UpstreamError::NotOpened(StatusCode::SERVICE_UNAVAILABLE) => Telling {
            status: StatusCode::SERVICE_UNAVAILABLE,
            retry_after: Some(5),
            ..bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_unavailable")
        },
        UpstreamError::NotOpened(_) | UpstreamError::NotListened(_) => {
            bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_not_mcp")
        }
        UpstreamError::InitializeTimeout(_)
        | UpstreamError::CallTimeout(_)
        | UpstreamError::NotTaken(_) => Telling {
            status: StatusCode::GATEWAY_TIMEOUT,
            ..bad_gateway(codes::DEADLINE, "deadline")
        },
        UpstreamError::BadSessionId(_) | UpstreamError::SeveralSessionIds => {
            bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_session_id")
        }
        UpstreamError::BadInitialize => bad_gateway(UPSTREAM_UNAVAILABLE, "upstream_initialize"),
    }
}
