//! All errors that a client can get.
//!
//! A [`Fault`] has a text for the client and a [`Row`] in the table: who is to blame, whether a retry may
//! help, the reason's name, the JSON-RPC code, the log level. Each front maps a fault to its own HTTP status.

mod table;
mod texts;
mod upstream;

use std::fmt::Write as _;

use bowline_store::{Refusal, StoreError};
use bowline_wire::message::{Malformed, Message, RawId};
use bowline_wire::version;
use bytes::Bytes;
use thiserror::Error;
use tracing::Level;

pub(crate) use self::table::{Blame, Reason, Retry, Row};
use self::texts::{of_share, store_rejection};
use crate::config::{CertificateHash, ServerName};
use crate::leg::Leg;
use crate::oauth::FlowStoreError;
use crate::session::client_state::TooMuchSaid;
use crate::session_store::PersistenceError;
use crate::share::ShareOwner;
use crate::telemetry::SessionHash;
use crate::upstream::{Declined, UpstreamError};

/// Why a request was not served.
#[derive(Debug, Error)]
pub(crate) enum Fault {
    #[error(
        "this Host is not allowed; use one of the gateway's addresses, or a name in `hosts` or `public_url`"
    )]
    Host,
    #[error("another gateway may have the session, and cannot be asked: {0}; retry later")]
    PeerUnreachable(Box<str>),
    #[error("this Origin is not allowed; allow it in `origins`")]
    Origin,
    #[error(
        "this gateway requires a key: send `Authorization: Bearer KEY`, with the key of one of its [callers]"
    )]
    Unauthorized,
    #[error(
        "this gateway requires a key or a client certificate: send `Authorization: Bearer KEY`, or configure the client with the certificate of one of its [callers]"
    )]
    KeyOrCertificate,
    #[error(
        "this gateway does not know the client certificate that was sent (SHA-256 {0}): add this hash to one of its [callers] as `certificate_sha256`, or send a key"
    )]
    UnknownCertificate(CertificateHash),
    #[error(
        "the client certificate has expired: renew it, and add the new one to its caller as `certificate_sha256`"
    )]
    CertificateExpired,
    #[error(
        "the client certificate is not valid yet: use it later, or set the clock of this gateway right"
    )]
    CertificateNotYetValid,
    #[error("the key and the client certificate belong to different callers: send one of the two")]
    TwoCallers,
    #[error(
        "the API requires its token: send `Authorization: Bearer TOKEN`, with BOWLINE_API_TOKEN"
    )]
    ApiToken,
    #[error(
        "this part of the API requires a token, and this gateway has none configured: set BOWLINE_API_TOKEN"
    )]
    NoApiToken,
    #[error("the query is longer than {limit} bytes")]
    QueryTooLong { limit: usize },
    #[error("nothing is served at this path; MCP is served at /mcp/{{server}}")]
    NoSuchPath,
    #[error(
        "no server with this name is configured; the path is /mcp/{{server}}, with a name from [servers]"
    )]
    NoSuchServer,
    #[error("the query must name one of the [callers]")]
    NoSuchCaller,
    #[error("no session has this hash, or it has ended; GET /api/sessions lists them")]
    NoSuchSession,
    #[error(
        "several servers are configured, so the path must name one: /mcp/{{server}}, or /sse/{{server}} for HTTP+SSE"
    )]
    ServerNotNamed,
    #[error(
        "this gateway has no authorization metadata: no authorization server issues tokens for it"
    )]
    NoMetadata,
    #[error("this endpoint does not know the method")]
    NoSuchMethod,
    #[error("`params.{0}` is missing, or is not what it should be")]
    MissingParam(&'static str),
    #[error("this cursor is none of this list's: ask for the list from its beginning")]
    BadCursor,
    #[error("\"{name}\": {why}")]
    UnknownName { name: Box<str>, why: Box<str> },
    #[error(
        "server \"{server}\" lost its session with this client, and all state in it; the next request opens another one"
    )]
    MemberLost { server: ServerName },
    #[error("server \"{server}\": {why}")]
    Declining { server: ServerName, why: Box<str> },
    #[error("server \"{server}\" is required here and cannot be listed: {why}")]
    RequiredServer { server: ServerName, why: Box<str> },
    #[error("this session has opened too many sessions with its servers; initialize again")]
    TooManyMembers,
    #[error("this method is not served here; use one of {allow}")]
    Method { allow: &'static str },
    #[error(
        "the response may be JSON or an event stream, so Accept must allow both application/json and text/event-stream"
    )]
    AcceptForPost,
    #[error("the response is an event stream, so Accept must allow text/event-stream")]
    AcceptForGet,
    #[error("the body must be JSON: send Content-Type: application/json")]
    ContentType,
    #[error("the body is larger than {limit} bytes ([limits] body_bytes)")]
    BodyTooLarge { limit: usize },
    #[error("the body did not arrive in time")]
    BodyTimeout,
    #[error("the connection broke before the body was complete")]
    BodyBroken,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error("this tool is not allowed here by the operator's configuration")]
    ToolNotAllowed,
    #[error(
        "the server's list of tools is too large or too unclear to apply the operator's configuration to it, so it is not shown"
    )]
    ToolsNotFiltered,
    #[error("the batch is empty")]
    EmptyBatch,
    #[error("`initialize` must not be in a batch")]
    InitializeInBatch,
    #[error(
        "`initialize`, its query and its forwarded headers are stored with the session, and are together larger than {limit} bytes"
    )]
    InitializeTooLarge { limit: usize },
    #[error("the batch has more than {limit} messages")]
    BatchTooLarge { limit: usize },
    #[error(
        "Mcp-Session-Id is missing: send `initialize` first, then repeat the id of its response"
    )]
    SessionRequired,
    #[error("send `initialize` first")]
    NotInitialized,
    #[error("Session not found")]
    UnknownSession,
    #[error(
        "the stream of this client is at another gateway: configure [peers], or have the load balancer send all requests of a client to the same gateway (by its address, or by the last part of this path)"
    )]
    StreamElsewhere,
    #[error(
        "the stream of this client is at another gateway, which cannot take the message now; retry later"
    )]
    StreamUnreachable,
    #[error(
        "whether the message was delivered is not known: the gateway that has this client's stream did not say so. If it was, its answer comes on the stream"
    )]
    DeliveryUnknown,
    #[error("MCP-Protocol-Version is not supported by this gateway (it supports {})", version::STREAMABLE.join(", "))]
    ProtocolVersion,
    #[error("this response matches no request sent to this client")]
    StrayAnswer,
    #[error("Last-Event-ID was not issued to this session")]
    LastEventId,
    #[error("too many sessions{} ([limits] sessions); retry later", of_share(*.0))]
    TooManySessions(ShareOwner),
    #[error("too many streams{} ([limits] streams); retry later", of_share(*.0))]
    TooManyStreams(ShareOwner),
    #[error("too many connections ([limits] connections); retry later")]
    TooManyConnections,
    #[error(
        "too many connections from this address ([limits] connections_per_address); retry later"
    )]
    TooManyConnectionsFromAddress,
    #[error("too many connections from this caller ([limits] connections); retry later")]
    TooManyConnectionsOfCaller,
    #[error("this socket is for the user that runs the gateway, and root")]
    OtherUser,
    #[error("unfinished request bodies use too much memory ([limits] body_bytes); retry later")]
    TooManyBodies,
    #[error(transparent)]
    TooManySubscriptions(#[from] TooMuchSaid),
    #[error("too many requests from this address; retry later")]
    TooManyVisits,
    #[error("the query has no `state`, or more than one")]
    NoState,
    #[error("the query has neither `code` nor `error`, or more than one")]
    NoCode,
    #[error("no sign-in waits for this state: it is unknown, used or expired")]
    NoSuchFlow,
    #[error("this response is not from the authorization server of this sign-in")]
    WrongIssuer,
    #[error(
        "the body must be {{\"action\": \"accept\" or \"decline\" or \"cancel\", \"content\": {{…}}, \"elicitation_id\": \"…\"}}"
    )]
    NoAnswer,
    #[error("no elicitation with this id waits for an answer in this session")]
    NoSuchQuestion,
    #[error(
        "a client of several servers has this session, and any of them may ask: give the `elicitation_id` of the elicitation that is meant, which `GET /api/mcp-oauth/pending` lists"
    )]
    SeveralQuestions,
    #[error(
        "server \"{server}\": its address leads back to this gateway; configure the address of the server itself"
    )]
    Loop { server: ServerName },
    #[error("the gateway is stopping; retry at another one")]
    Stopping,
    #[error("the gateway's source of random numbers failed")]
    Random,
    #[error("the session store is unavailable: {0}; retry later")]
    Store(Box<str>),
    #[error("the session store rejected the operation{}; retry later", store_rejection(*.0))]
    StoreRefused(Refusal),
    #[error("server \"{server}\": {error}")]
    Upstream {
        server: ServerName,
        generation: u32,
        error: UpstreamError,
    },
    /// Trouble of one server of a union: the answer to the request that was for it, and nothing about the client's
    /// session with the union.
    #[error(transparent)]
    Member(Box<Self>),
}

/// Log fields of a refused request.
#[derive(Debug, Default)]
pub(crate) struct LogContext<'a> {
    pub(crate) server: Option<&'a ServerName>,
    pub(crate) session: Option<SessionHash>,
    /// The HTTP status, if the front knows it.
    pub(crate) status: Option<u16>,
}

// === impl Fault ===

impl Fault {
    /// The fault for an upstream error on this leg.
    pub(crate) fn on(leg: &Leg, error: UpstreamError) -> Self {
        Self::Upstream {
            server: leg.upstream.name.clone(),
            generation: leg.generation.number,
            error,
        }
    }

    /// The session store failed, so the session's state is unknown.
    pub(crate) fn store_failed(why: &PersistenceError) -> Self {
        match why {
            // The store's own message is only for the operator's log.
            PersistenceError::Store(StoreError::Refused { why, .. }) => Self::StoreRefused(*why),
            _ => Self::Store(why.to_string().into()),
        }
    }

    /// The same fault, met by a request to one server of a union. What is the gateway's or the caller's own trouble
    /// (a limit of theirs, the store, a stop) stays what it is.
    pub(crate) fn of_member(self) -> Self {
        let is_of_server = matches!(
            self,
            Self::Upstream { .. }
                | Self::Loop { .. }
                | Self::Declining { .. }
                | Self::PeerUnreachable(_)
                | Self::TooManyStreams(ShareOwner::Server)
        );
        match is_of_server {
            true => Self::Member(Box::new(self)),
            false => self,
        }
    }

    /// The server's own refusal, if this fault is one.
    pub(crate) fn declined(&self) -> Option<&Declined> {
        match self {
            Self::Member(fault) => fault.declined(),
            Self::Upstream {
                error: UpstreamError::Declined(declined),
                ..
            } => Some(declined),
            _ => None,
        }
    }

    /// The server's own answer to the request with this id, if this fault is a refusal that carries it.
    pub(crate) fn said(&self, id: Option<RawId<'_>>) -> Option<Bytes> {
        let body = self.declined()?.body.clone()?;
        let said = Message::from_server(body.clone()).ok()?;
        id.is_some_and(|id| said.answers(id)).then_some(body)
    }

    /// Whether it says that the session is gone: its server forgot it, or it has ended.
    pub(crate) fn is_session_lost(&self) -> bool {
        matches!(
            self.reason(),
            Reason::UpstreamSessionLost | Reason::UnknownSession
        )
    }

    /// How this fault is reported.
    pub(crate) fn row(&self) -> Row {
        let row = self.reason().row();
        match self {
            // A client waits for its session, and not for one server of several.
            Self::Member(_) => Row {
                is_final: true,
                retry: Retry::No,
                ..row
            },
            Self::Upstream { error, .. } => Row {
                retry: upstream::retry(error).unwrap_or(row.retry),
                ..row
            },
            _ => row,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Host => Reason::HostNotAllowed,
            Self::Origin => Reason::OriginNotAllowed,
            Self::Unauthorized | Self::KeyOrCertificate => Reason::Unauthorized,
            Self::UnknownCertificate(_) => Reason::UnknownCertificate,
            Self::CertificateExpired => Reason::CertificateExpired,
            Self::CertificateNotYetValid => Reason::CertificateNotYetValid,
            Self::TwoCallers => Reason::TwoCallers,
            Self::ApiToken => Reason::ApiToken,
            Self::NoApiToken => Reason::NoApiToken,
            Self::QueryTooLong { .. } => Reason::QueryTooLong,
            Self::NoSuchPath => Reason::NoSuchPath,
            Self::NoSuchServer => Reason::NoSuchServer,
            Self::NoSuchCaller => Reason::NoSuchCaller,
            Self::NoSuchSession => Reason::NoSuchSession,
            Self::PeerUnreachable(_) => Reason::OwnerUnreachable,
            Self::ServerNotNamed => Reason::ServerNotNamed,
            Self::NoMetadata => Reason::NoMetadata,
            Self::NoSuchMethod => Reason::NoSuchMethod,
            Self::MissingParam(_) => Reason::MissingParam,
            Self::BadCursor => Reason::BadCursor,
            Self::UnknownName { .. } => Reason::UnknownName,
            Self::Member(fault) => fault.reason(),
            Self::MemberLost { .. } => Reason::MemberLost,
            Self::Declining { .. } => Reason::UpstreamDeclined,
            Self::RequiredServer { .. } => Reason::RequiredServer,
            Self::TooManyMembers => Reason::TooManyMembers,
            Self::Method { .. } => Reason::MethodNotAllowed,
            Self::AcceptForPost | Self::AcceptForGet => Reason::NotAcceptable,
            Self::ContentType => Reason::UnsupportedMediaType,
            Self::BodyTooLarge { .. } => Reason::BodyTooLarge,
            Self::BodyTimeout => Reason::BodyTimeout,
            Self::BodyBroken => Reason::BodyBroken,
            Self::Malformed(Malformed::NotJson(_)) => Reason::NotJson,
            Self::Malformed(
                Malformed::NotJsonRpc(_)
                | Malformed::Ambiguous
                | Malformed::OddName(_)
                | Malformed::TwoReadings { .. },
            ) => Reason::NotJsonRpc,
            Self::Malformed(Malformed::Batch) => Reason::Batch,
            Self::ToolNotAllowed => Reason::ToolNotAllowed,
            Self::ToolsNotFiltered => Reason::ToolsNotFiltered,
            Self::EmptyBatch => Reason::EmptyBatch,
            Self::InitializeInBatch => Reason::InitializeInBatch,
            Self::InitializeTooLarge { .. } => Reason::InitializeTooLarge,
            Self::BatchTooLarge { .. } => Reason::BatchTooLarge,
            Self::SessionRequired => Reason::SessionRequired,
            Self::NotInitialized => Reason::NotInitialized,
            Self::UnknownSession => Reason::UnknownSession,
            Self::StreamElsewhere => Reason::StreamElsewhere,
            Self::StreamUnreachable => Reason::OwnerUnreachable,
            Self::DeliveryUnknown => Reason::DeliveryUnknown,
            Self::ProtocolVersion => Reason::ProtocolVersion,
            Self::StrayAnswer => Reason::StrayAnswer,
            Self::LastEventId => Reason::LastEventId,
            Self::TooManySessions(ShareOwner::Caller) => Reason::TooManySessionsOfCaller,
            Self::TooManySessions(_) => Reason::TooManySessions,
            Self::TooManyStreams(ShareOwner::Gateway) => Reason::TooManyStreams,
            Self::TooManyStreams(ShareOwner::Server) => Reason::TooManyStreamsOfServer,
            Self::TooManyStreams(ShareOwner::Caller) => Reason::TooManyStreamsOfCaller,
            Self::TooManyConnections => Reason::TooManyConnections,
            Self::TooManyConnectionsFromAddress => Reason::TooManyConnectionsFromAddress,
            Self::TooManyConnectionsOfCaller => Reason::TooManyConnectionsOfCaller,
            Self::OtherUser => Reason::OtherUser,
            Self::TooManyBodies => Reason::TooManyBodies,
            Self::TooManySubscriptions(_) => Reason::TooManySubscriptions,
            Self::TooManyVisits => Reason::TooManyVisits,
            Self::NoState => Reason::NoState,
            Self::NoCode => Reason::NoCode,
            Self::NoSuchFlow => Reason::NoSuchFlow,
            Self::WrongIssuer => Reason::WrongIssuer,
            Self::NoAnswer => Reason::NoAnswer,
            Self::NoSuchQuestion => Reason::NoSuchQuestion,
            Self::SeveralQuestions => Reason::SeveralQuestions,
            Self::Loop { .. } => Reason::Loop,
            Self::Stopping => Reason::Stopping,
            Self::Random => Reason::RandomSource,
            Self::Store(_) => Reason::StoreUnavailable,
            Self::StoreRefused(_) => Reason::StoreRefused,
            Self::Upstream { error, .. } => upstream::reason(error),
        }
    }

    /// The JSON-RPC error as a body. It echoes the request's id, or has no id.
    pub(crate) fn body(&self, id: Option<RawId<'_>>) -> String {
        if let Self::Member(fault) = self {
            return fault.body(id);
        }
        let id = match self {
            Self::Malformed(malformed) => malformed.id().or(id),
            _ => id,
        };
        let row = self.row();
        let mut body = String::from(r#"{"jsonrpc":"2.0","#);
        if let Some(id) = id {
            // Writing to a String cannot fail.
            _ = write!(body, r#""id":{id},"#);
        }
        let message = serde_json::Value::from(self.to_string());
        _ = write!(
            body,
            r#""error":{{"code":{},"message":{message},"data":{{"reason":"{}""#,
            row.code, row.name
        );
        if let Self::Upstream {
            server, generation, ..
        } = self
        {
            _ = write!(body, r#","server":"{server}","generation":{generation}"#);
        }
        if let Self::MemberLost { server }
        | Self::Declining { server, .. }
        | Self::RequiredServer { server, .. } = self
        {
            _ = write!(body, r#","server":"{server}""#);
        }
        body.push_str("}}}");
        body
    }

    /// Logs the fault at its row's level.
    pub(crate) fn log(&self, context: &LogContext<'_>) {
        let Row {
            name: reason,
            blame,
            level,
            ..
        } = self.row();
        let blame = blame.name();
        let server = context.server.map(tracing::field::display);
        let session = context.session.map(tracing::field::display);
        let status = context.status;
        // The macros need the level at compile time.
        macro_rules! log {
            ($level:ident) => {
                tracing::$level!(reason, blame, status, session, server, "refused")
            };
        }
        match level {
            Level::ERROR => log!(error),
            Level::WARN => log!(warn),
            _ => log!(info),
        }
    }
}

/// The store's own message goes only to the log, because anyone can request a sign-in page.
impl From<FlowStoreError> for Fault {
    fn from(error: FlowStoreError) -> Self {
        tracing::warn!(%error, "sign-in state could not be read or written");
        match error {
            FlowStoreError::Store(StoreError::Refused { why, .. }) => Self::StoreRefused(why),
            FlowStoreError::NoRandomness(_) => Self::Random,
            _ => Self::Store("sign-in state could not be read or written".into()),
        }
    }
}

#[cfg(test)]
mod tests;
