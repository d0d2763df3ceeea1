//! What a probe found out. The fields are those of `bowline probe --json`.

use std::fmt;

use serde::Serialize;

/// What a server speaks, and what is wrong with it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The server as people know it: its name, its URL without the query, or its program.
    pub server: String,
    /// How many replicas are configured; the first was probed.
    pub endpoints: usize,
    /// How messages are sent to it, if it speaks MCP.
    pub transport: Option<Transport>,
    /// With or without sessions.
    pub era: Option<Era>,
    /// What it answered to each protocol revision that was offered, newest first.
    pub versions: Vec<Offer>,
    /// What it calls itself.
    pub server_info: Option<ServerInfo>,
    /// The names of its capabilities.
    pub capabilities: Vec<String>,
    /// Its session ids. `None` if it is a process, or was not reached.
    pub sessions: Option<Sessions>,
    /// The cookies that it set.
    pub cookies: Vec<Cookie>,
    /// How it streams. `None` if it is a process, or was not reached.
    pub streams: Option<Streams>,
    /// The sign-in that it demands. `None` if it demands none.
    pub sign_in: Option<SignIn>,
    /// Its tools, if it says that it has any; none of them is called.
    pub tools: Option<Listing>,
    /// Its prompts, if it says that it has any.
    pub prompts: Option<Listing>,
    /// Its resources, if it says that it has any.
    pub resources: Option<Listing>,
    /// How long pings took.
    pub ping: Option<Pings>,
    /// What the probe was doing when its time was over.
    pub unfinished: Option<Step>,
    /// What Bowline does with this server, in sentences.
    pub outlook: Vec<String>,
    /// Whether Bowline works with it.
    pub verdict: Verdict,
    /// What is wrong or worth knowing.
    pub findings: Vec<Finding>,
}

/// How messages are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE, the transport of 2024-11-05.
    HttpSse,
    /// Lines on the pipes of a process.
    Stdio,
}

/// With or without sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Era {
    /// `initialize` opens a session: up to 2025-11-25.
    Legacy,
    /// Every request stands alone: from 2026-07-28.
    Modern,
    /// Both.
    Both,
}

/// A protocol revision that was offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offer {
    /// The revision.
    pub offered: &'static str,
    /// The revision that the server answered; `None` if it answered with an error.
    pub answered: Option<String>,
}

/// What a server calls itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerInfo {
    /// Its name.
    pub name: String,
    /// Its version; empty if it has none.
    pub version: String,
}

/// A server's session ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sessions {
    /// Whether it issues any.
    pub has_ids: bool,
    /// Its answer to an id that it did not issue.
    pub unknown_id: Option<UnknownId>,
    /// The status of its answer to DELETE.
    pub delete_status: Option<u16>,
    /// The status of its answer to a ping after that.
    pub after_delete_status: Option<u16>,
}

/// The answer to a session id that the server did not issue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnknownId {
    /// The HTTP status.
    pub status: u16,
    /// The JSON-RPC error code, if it had one.
    pub code: Option<i64>,
    /// The beginning of the error's text, if it had one.
    pub text: Option<String>,
    /// Whether Bowline would take it for a lost session.
    pub is_recognized: bool,
    /// The entry of `session_lost` by which it would, where it does not.
    pub rule: Option<String>,
}

/// A cookie, without its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Its attributes, such as `Path=/` and `Secure`.
    pub attributes: Vec<String>,
    /// Whether the server gets it back.
    pub is_sent_back: bool,
}

/// How a server streams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// Whether it answered a POST with a stream of events rather than with JSON.
    pub answers_with_events: bool,
    /// Whether it offers a stream of its own messages (GET).
    pub offers_get: bool,
    /// The status of its answer to GET.
    pub get_status: Option<u16>,
    /// Whether its events have ids, by which a broken stream is resumed.
    pub has_event_ids: bool,
}

/// The sign-in that a server demands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SignIn {
    /// Whether Bowline has a token that the server accepts.
    pub is_signed_in: bool,
    /// Whether the 401 said how to authenticate (`WWW-Authenticate: Bearer`).
    pub has_challenge: bool,
    /// Whether protected resource metadata is published (RFC 9728).
    pub has_resource_metadata: bool,
    /// The authorization server, if it was found and can be used.
    pub issuer: Option<String>,
    /// Whether the authorization server registers clients by itself (RFC 7591).
    pub registers_clients: bool,
    /// The scopes that a sign-in asks for.
    pub scopes: Vec<String>,
    /// What is missing or wrong.
    pub error: Option<String>,
}

/// What a server lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// How many there are.
    pub count: usize,
    /// On how many pages.
    pub pages: usize,
    /// Whether there are more pages than the probe reads.
    pub has_more: bool,
    /// Of tools: how many say that they can be called twice.
    pub safe_to_repeat: Option<usize>,
    /// Why the list was not read to its end.
    pub error: Option<String>,
}

/// How long pings took.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pings {
    /// How many were sent.
    pub sent: usize,
    /// How many were answered.
    pub answered: usize,
    /// The median of those, in milliseconds.
    pub median_ms: Option<f64>,
}

/// Whether Bowline works with a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It does, and nothing is wrong.
    Works,
    /// It does, and something should be known.
    WorksWithRemarks,
    /// It does not.
    #[default]
    DoesNotWork,
}

/// Something that is wrong or worth knowing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Its name for programs.
    pub id: &'static str,
    /// What it is.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it.
    pub advice: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Bowline does not work with this server.
    Problem,
    /// It does, but.
    Remark,
}

/// What a probe is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It opens a session.
    Open,
    /// It measures pings.
    Ping,
    /// It reads lists.
    List,
    /// It looks at streams.
    Stream,
    /// It sends a session id that the server did not issue.
    UnknownId,
    /// It asks for the revision without sessions.
    Era,
    /// It ends the session.
    End,
    /// It offers older revisions.
    Versions,
    /// It looks for OAuth metadata.
    SignIn,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "opening a session",
            Self::Ping => "measuring pings",
            Self::List => "reading lists",
            Self::Stream => "looking at streams",
            Self::UnknownId => "trying an unknown session id",
            Self::Era => "asking for 2026-07-28",
            Self::End => "ending the session",
            Self::Versions => "offering older revisions",
            Self::SignIn => "looking for OAuth metadata",
        })
    }
}
