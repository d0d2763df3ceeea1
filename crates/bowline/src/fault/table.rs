//! The table of refusals: one row for each reason.

use tracing::Level;

use bowline_wire::codes::{
    CANCELLED, DEADLINE, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, MEMBER_LOST,
    METHOD_NOT_FOUND, OUTCOME_UNKNOWN, OVERLOADED, PARSE_ERROR, SESSION_NOT_FOUND, SIGN_IN_NEEDED,
    UPSTREAM_UNAVAILABLE,
};

/// Who can fix the cause of a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blame {
    Client,
    Upstream,
    Gateway,
}

/// Whether repeating the request may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retry {
    No,
    /// After this many seconds.
    Later(u32),
}

/// How a fault is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) reason: Reason,
    /// The reason's name, in logs, in metrics and in `data.reason`.
    pub(crate) name: &'static str,
    pub(crate) blame: Blame,
    pub(crate) retry: Retry,
    /// The JSON-RPC error code.
    pub(crate) code: i64,
    /// The level of the log message.
    pub(crate) level: Level,
    /// This is the final answer to a request that was sent, so over HTTP it has a success status. Many
    /// clients take an error status for the end of the session, or show only the status; the error in the
    /// body belongs to one request.
    pub(crate) is_final: bool,
    /// What the reason means, for the reference.
    pub(crate) meaning: &'static str,
}

/// Declares [`Reason`] together with its rows, so that every reason has one.
macro_rules! table {
    ($($reason:ident = $name:literal, $blame:ident, $retry:expr, $code:ident, $level:ident, $is_final:literal:
       $meaning:literal;)*) => {
        /// Why a request was refused or failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($reason,)*
        }

        impl Reason {
            /// Every row of the table.
            pub(crate) const ROWS: &[Row] = &[$(Self::$reason.row(),)*];

            /// The row of this reason.
            pub(crate) const fn row(self) -> Row {
                use Retry::{Later, No};
                match self {
                    $(Self::$reason => Row {
                        reason: self,
                        name: $name,
                        blame: Blame::$blame,
                        retry: $retry,
                        code: $code,
                        level: Level::$level,
                        is_final: $is_final,
                        meaning: $meaning,
                    },)*
                }
            }
        }
    };
}

// reason = name, blame, retry, code, level, is_final: meaning;
table! {
    // The HTTP request.
    HostNotAllowed = "host_not_allowed", Client, No, INVALID_REQUEST, INFO, false:
        "the `Host` header is none of the gateway's addresses or names: see `hosts`";
    OriginNotAllowed = "origin_not_allowed", Client, No, INVALID_REQUEST, INFO, false:
        "a web page of an origin that is not allowed: see `origins`";
    OtherUser = "other_user", Client, No, INVALID_REQUEST, WARN, false:
        "a process of another user connected to a Unix socket, which is for the gateway's own user and root; nothing of the request was read";
    Unauthorized = "unauthorized", Client, No, INVALID_REQUEST, INFO, false:
        "no key and no client certificate, or not the key of one of the `[callers]`";
    UnknownCertificate = "unknown_certificate", Client, No, INVALID_REQUEST, INFO, false:
        "no key, and not the client certificate of one of the `[callers]`";
    CertificateExpired = "certificate_expired", Client, No, INVALID_REQUEST, INFO, false:
        "no key, and the client certificate of one of the `[callers]` has expired";
    CertificateNotYetValid = "certificate_not_yet_valid", Client, No, INVALID_REQUEST, INFO, false:
        "no key, and the client certificate of one of the `[callers]` is not valid yet";
    TwoCallers = "two_callers", Client, No, INVALID_REQUEST, INFO, false:
        "the key of one of the `[callers]`, and the client certificate of another";
    ApiToken = "api_token", Client, No, INVALID_REQUEST, INFO, false:
        "the API requires its token (`BOWLINE_API_TOKEN`)";
    NoApiToken = "no_api_token", Client, No, INVALID_REQUEST, INFO, false:
        "this part of the API requires a token, and none is configured: set `BOWLINE_API_TOKEN`";
    QueryTooLong = "query_too_long", Client, No, INVALID_REQUEST, INFO, false:
        "the query is longer than 16 KiB";
    NoSuchPath = "no_such_path", Client, No, INVALID_REQUEST, INFO, false:
        "nothing is served at this path";
    NoSuchServer = "no_such_server", Client, No, INVALID_REQUEST, INFO, false:
        "no server with this name is configured in `[servers]`";
    NoSuchCaller = "no_such_caller", Client, No, INVALID_REQUEST, INFO, false:
        "sign-out: the query names no caller";
    NoSuchSession = "no_such_session", Client, No, INVALID_REQUEST, INFO, false:
        "no session has this hash";
    ServerNotNamed = "server_not_named", Client, No, INVALID_REQUEST, INFO, false:
        "the path is `/mcp`, and not exactly one server is configured";
    NoMetadata = "no_metadata", Client, No, INVALID_REQUEST, INFO, false:
        "`/.well-known/`: clients look there on their own, and this gateway has no metadata";
    MethodNotAllowed = "method_not_allowed", Client, No, INVALID_REQUEST, INFO, false:
        "the path does not serve this HTTP method; `Allow` lists those that it serves";
    NotAcceptable = "not_acceptable", Client, No, INVALID_REQUEST, INFO, false:
        "`Accept` lacks a type that the response may have";
    UnsupportedMediaType = "unsupported_media_type", Client, No, INVALID_REQUEST, INFO, false:
        "the body is not `application/json`";
    BodyTooLarge = "body_too_large", Client, No, INVALID_REQUEST, INFO, false:
        "the body is larger than `[limits] body_bytes`";
    BodyTimeout = "body_timeout", Client, No, INVALID_REQUEST, INFO, false:
        "the body took longer than 30 s to arrive";
    BodyBroken = "body_broken", Client, No, INVALID_REQUEST, INFO, false:
        "the connection broke before the body was complete";

    // The message.
    NotJson = "not_json", Client, No, PARSE_ERROR, INFO, false:
        "the body is not JSON";
    NotJsonRpc = "not_json_rpc", Client, No, INVALID_REQUEST, INFO, false:
        "the body is JSON and not a JSON-RPC message";
    Batch = "batch", Client, No, INVALID_REQUEST, INFO, false:
        "a batch outside a session of revision 2025-03-26";
    ToolNotAllowed = "tool_not_allowed", Client, No, INVALID_PARAMS, INFO, false:
        "the tool is not one that the server's `tools` allow, or the call names it in a way that can be read differently; it did not reach the server";
    ToolsNotFiltered = "tools_not_filtered", Upstream, No, INTERNAL_ERROR, WARN, true:
        "`tools/list` of a server with `tools`: the list is larger than 8 MiB or can be read in several ways, so it is not shown";
    EmptyBatch = "empty_batch", Client, No, INVALID_REQUEST, INFO, false:
        "the batch has no messages";
    InitializeInBatch = "initialize_in_batch", Client, No, INVALID_REQUEST, INFO, false:
        "`initialize` in a batch";
    InitializeTooLarge = "initialize_too_large", Client, No, INVALID_REQUEST, INFO, false:
        "`initialize`, its query and its forwarded headers are stored with the session and are larger than 64 KiB; or another message without `Mcp-Session-Id` is";
    BatchTooLarge = "batch_too_large", Client, No, INVALID_REQUEST, INFO, false:
        "the batch has more than 100 messages";
    SessionRequired = "session_required", Client, No, INVALID_REQUEST, INFO, false:
        "`Mcp-Session-Id` is missing";
    NotInitialized = "not_initialized", Client, No, INVALID_REQUEST, INFO, false:
        "a message on stdio or HTTP+SSE before `initialize`";
    UnknownSession = "unknown_session", Client, No, SESSION_NOT_FOUND, INFO, false:
        "the session is unknown, has ended, or is another caller's: the client must re-initialize";
    ProtocolVersion = "protocol_version", Client, No, INVALID_REQUEST, INFO, false:
        "`MCP-Protocol-Version` names a revision that Bowline does not support";
    StrayAnswer = "stray_answer", Client, No, INVALID_REQUEST, INFO, false:
        "the response matches no request that was sent to this client";
    LastEventId = "last_event_id", Client, No, INVALID_REQUEST, INFO, false:
        "`Last-Event-ID` was not issued to this session";

    // Unions.
    NoSuchMethod = "no_such_method", Client, No, METHOD_NOT_FOUND, INFO, true:
        "a union does not know the method";
    MissingParam = "missing_param", Client, No, INVALID_PARAMS, INFO, true:
        "a union needs a parameter to find the server of a request, and it is missing";
    BadCursor = "bad_cursor", Client, No, INVALID_PARAMS, INFO, true:
        "a list of a union was asked for with a cursor that is none";
    UnknownName = "unknown_name", Client, No, INVALID_PARAMS, INFO, true:
        "no server of the union has a tool or prompt of this name, or several have it or may have it, or several have this resource; the message says which";
    MemberLost = "member_lost", Upstream, No, MEMBER_LOST, WARN, true:
        "a server of a union lost its session with this client and was not recovered (`on_loss = \"tell\"`), or the session ended; the next request opens another one";
    RequiredServer = "required_server", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, true:
        "a server with `required = true` cannot be listed";
    TooManyMembers = "too_many_members", Client, No, OVERLOADED, INFO, true:
        "a client of a union has opened 65535 sessions with its servers";

    // Limits.
    TooManySessions = "too_many_sessions", Gateway, Later(5), OVERLOADED, WARN, false:
        "`[limits] sessions` is reached";
    TooManySessionsOfCaller = "too_many_sessions_of_caller", Client, Later(5), OVERLOADED, INFO, false:
        "the caller's share of `[limits] sessions` is used up";
    TooManyStreams = "too_many_streams", Gateway, Later(5), OVERLOADED, WARN, false:
        "`[limits] streams` is reached";
    TooManyStreamsOfServer = "too_many_streams_of_server", Upstream, Later(5), OVERLOADED, WARN, false:
        "the server's share of `[limits] streams` is used up";
    TooManyStreamsOfCaller = "too_many_streams_of_caller", Client, Later(5), OVERLOADED, INFO, false:
        "the caller's share of `[limits] streams` is used up";
    TooManyConnections = "too_many_connections", Gateway, Later(5), OVERLOADED, WARN, false:
        "`[limits] connections` is reached; nothing of the request was read";
    TooManyConnectionsFromAddress = "too_many_connections_from_address", Client, Later(5), OVERLOADED, INFO, false:
        "`[limits] connections_per_address` is reached, and a request is served on each; nothing of this one was read";
    TooManyConnectionsOfCaller = "too_many_connections_of_caller", Client, Later(5), OVERLOADED, INFO, false:
        "the caller's share of `[limits] connections` is used up; the connection is closed";
    TooManyBodies = "too_many_bodies", Gateway, Later(5), OVERLOADED, WARN, false:
        "messages of more than 64 KiB, or `initialize`s of more than 4 KiB, use up their memory, or the caller's share of it";
    // Sent as the response to the client's request.
    TooManyProcesses = "too_many_processes", Gateway, Later(5), OVERLOADED, WARN, false:
        "`[limits] children` is reached";
    TooManyProcessesOfServer = "too_many_processes_of_server", Upstream, Later(5), OVERLOADED, WARN, false:
        "the server's share of `[limits] children` is used up";
    TooManyProcessesOfCaller = "too_many_processes_of_caller", Client, Later(5), OVERLOADED, INFO, false:
        "the caller's share of `[limits] children` is used up";
    TooManyStarts = "too_many_starts", Upstream, Later(5), OVERLOADED, WARN, false:
        "the server's processes start a few at a time, and this one's turn did not come within `recovery_budget`";
    TooManySubscriptions = "too_many_subscriptions", Client, No, OVERLOADED, INFO, false:
        "the session has more than 1000 subscriptions, or 64 KiB of them: they could not be restored after a loss";
    TooManyVisits = "too_many_visits", Client, Later(1), OVERLOADED, INFO, false:
        "too many requests from this address to the sign-in pages";

    // Sign-ins.
    NoState = "no_state", Client, No, INVALID_REQUEST, INFO, false:
        "the query has no `state`, or more than one";
    NoCode = "no_code", Client, No, INVALID_REQUEST, INFO, false:
        "the query has neither `code` nor `error`, or more than one";
    NoSuchFlow = "no_such_flow", Client, No, INVALID_REQUEST, INFO, false:
        "no sign-in waits for this `state`: it is unknown, used or expired";
    WrongIssuer = "wrong_issuer", Client, No, INVALID_REQUEST, INFO, false:
        "the response is not from the authorization server of this sign-in";
    NoAnswer = "no_answer", Client, No, INVALID_REQUEST, INFO, false:
        "the body is not the answer to an elicitation";
    NoSuchQuestion = "no_such_question", Client, No, INVALID_REQUEST, INFO, false:
        "no elicitation with this id waits for an answer in this session";
    SeveralQuestions = "several_questions", Client, No, INVALID_REQUEST, INFO, false:
        "the session is of a client of several servers, and the body names no elicitation";

    // The gateway and its store.
    Loop = "loop", Gateway, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server's address leads back to this gateway: no session was opened";
    Stopping = "stopping", Gateway, Later(5), OVERLOADED, INFO, false:
        "the gateway is stopping";
    RandomSource = "random_source", Gateway, No, INTERNAL_ERROR, ERROR, false:
        "the system returned no random numbers";
    StoreUnavailable = "store_unavailable", Gateway, Later(1), INTERNAL_ERROR, WARN, false:
        "the session store is unavailable, so the session cannot be looked up";
    StoreRefused = "store_refused", Gateway, Later(5), INTERNAL_ERROR, WARN, false:
        "the session store answers and rejects the operation; the message says why";

    // The server.
    OutOfSockets = "out_of_sockets", Gateway, Later(1), OVERLOADED, WARN, false:
        "this machine has no file descriptors or ports left to connect with";
    UpstreamHttp2 = "upstream_http2", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server supports HTTP/2 only; Bowline sends HTTP/1.1 to servers";
    UpstreamUnreachable = "upstream_unreachable", Upstream, Later(5), UPSTREAM_UNAVAILABLE, WARN, false:
        "no connection to the server, so nothing was sent";
    UpstreamUnavailable = "upstream_unavailable", Upstream, Later(5), UPSTREAM_UNAVAILABLE, WARN, false:
        "not sent, because the server was unreachable a moment ago or no endpoint is healthy; or the server opened no session within `recovery_budget`";
    SessionElsewhere = "session_elsewhere", Gateway, Later(1), UPSTREAM_UNAVAILABLE, INFO, false:
        "the session's process (`command`) belongs to another gateway on the store, which is present";
    StreamElsewhere = "stream_elsewhere", Gateway, Later(1), UPSTREAM_UNAVAILABLE, WARN, false:
        "HTTP+SSE: the client's stream is at another gateway on the store, which is present, and there is no `[peers]`; a load balancer has to send all requests of a client to the same gateway";
    DeliveryUnknown = "delivery_unknown", Gateway, No, OUTCOME_UNKNOWN, WARN, false:
        "HTTP+SSE: a message was forwarded to the gateway that has the client's stream, which did not say whether it took it; if it did, the answer comes on the stream";
    OwnerUnreachable = "owner_unreachable", Gateway, Later(1), UPSTREAM_UNAVAILABLE, WARN, false:
        "the session, or the client's HTTP+SSE stream, lives in another gateway on the store, which is present and cannot be reached over `[peers]`, cannot tell now whether the session is still its own, or does not know the caller; nothing was sent";
    ProcessFailed = "process_failed", Upstream, Later(5), UPSTREAM_UNAVAILABLE, WARN, false:
        "the server's process did not start, or exited before it answered `initialize`; the message says why";
    UpstreamNotMcp = "upstream_not_mcp", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "`initialize` failed";
    UpstreamSessionId = "upstream_session_id", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server issued an invalid session id, or several";
    UpstreamInitialize = "upstream_initialize", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server's response to `initialize` is not a response to it";
    UpstreamRedirected = "upstream_redirected", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "a redirect to another origin, or too many redirects";
    UpstreamForbidden = "upstream_forbidden", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server answered 403";
    UpstreamUnauthorized = "upstream_unauthorized", Upstream, No, SIGN_IN_NEEDED, WARN, true:
        "the server answered 401: see its `headers`";
    SignInNeeded = "sign_in_needed", Client, No, SIGN_IN_NEEDED, INFO, true:
        "the caller must sign in at this server";
    GrantUnknown = "grant_unknown", Gateway, Later(5), UPSTREAM_UNAVAILABLE, WARN, false:
        "the caller's token cannot be read or refreshed now";
    UpstreamDeclined = "upstream_declined", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, false:
        "the server rejected the request with a 4xx that is not MCP, so it did not run; with the server's `Retry-After`. For a 404 the status is 200, because the session goes on";
    UpstreamSessionLost = "upstream_session_lost", Upstream, No, SESSION_NOT_FOUND, WARN, false:
        "the server no longer knows the session, which ended here, too: the client must re-initialize (`on_session_loss = \"tell\"`, or the server has changed)";
    NotRecovered = "not_recovered", Upstream, Later(5), UPSTREAM_UNAVAILABLE, WARN, false:
        "the session could not be recovered within `recovery_budget`";
    // No retry: each leaves sessions behind.
    NotSticky = "not_sticky", Upstream, No, UPSTREAM_UNAVAILABLE, WARN, true:
        "a load balancer before the server is not sticky: a session that was opened is unknown to the replica that gets its next message, three times in a row";
    // No retry: the request could run twice.
    OutcomeUnknown = "outcome_unknown", Upstream, No, OUTCOME_UNKNOWN, WARN, true:
        "sent, and no readable response arrived, or a redirect that does not say whether the request ran: it may have run, and is not safe to repeat";
    AnswerTooLarge = "answer_too_large", Upstream, No, INTERNAL_ERROR, WARN, true:
        "the request ran, and its answer is too large to be passed on: a message has 64 MiB at most, a list that is inspected and a batch 8 MiB";
    Deadline = "deadline", Upstream, No, DEADLINE, WARN, true:
        "`call_timeout` has passed, or the server did not answer `initialize` within `recovery_budget`";
    Cancelled = "cancelled", Client, No, CANCELLED, INFO, true:
        "the client cancelled the request during a recovery of its session";
}

impl Blame {
    /// Its name in logs and in the reference.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Upstream => "upstream",
            Self::Gateway => "gateway",
        }
    }
}

impl Retry {
    /// After how many seconds, if at all.
    pub(crate) const fn seconds(self) -> Option<u32> {
        match self {
            Self::No => None,
            Self::Later(seconds) => Some(seconds),
        }
    }
}
