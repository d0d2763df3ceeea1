//! One MCP server behind the gateway, as it is configured.

use std::time::Duration;

use super::{Certificates, Command, ServerName, ServerOAuth, ToolFilter, UrlProblem, url};

/// One MCP server behind the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Where it is.
    pub target: Target,
    /// Which transport it speaks at its URLs.
    pub transport: Transport,
    /// Headers added to every request; every value is marked sensitive, so `Debug` hides it.
    pub headers: http::HeaderMap,
    /// Headers of the client's request that are passed on.
    pub forward_headers: Vec<http::HeaderName>,
    /// The certificate authorities to trust for it, besides the platform's.
    pub ca: Option<Certificates>,
    /// How long to wait for a connection.
    pub connect_timeout: Duration,
    /// How long a call may take without a response or progress; `None` for no limit.
    pub call_timeout: Option<Duration>,
    /// The health checks of its endpoints.
    pub health: Health,
    /// How long an idle session of it is left alone before it is pinged, so that the server keeps it; `None` for
    /// always.
    pub keep_alive: Option<Duration>,
    /// What happens when it loses a session.
    pub recovery: Recovery,
    /// How callers sign in there; `None` where they do not.
    pub oauth: Option<ServerOAuth>,
    /// What names begin with that a union has from it; its own name when this is `None`, see [`Server::prefix`].
    pub prefix: Option<String>,
    /// Whether a union answers with an error while this server cannot be listed.
    pub required: bool,
    /// How long it may delay a list of a union.
    pub list_timeout: Duration,
    /// Which of its tools may be used; `None` for all.
    pub tools: Option<ToolFilter>,
}

/// Where a server is. Paths and queries are as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// At one name, resolved for every connection: a balancer's, or that of a single server.
    Url(http::Uri),
    /// At several, each of which is pinned: Bowline is the balancer.
    Endpoints(Vec<http::Uri>),
    /// A process of each session's own, on this machine.
    Command(Command),
}

/// Which transport a server speaks at its URLs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Streamable HTTP or, if the server does not know that, HTTP+SSE.
    #[default]
    Auto,
    /// Streamable HTTP.
    StreamableHttp,
    /// HTTP+SSE (2024-11-05).
    Sse,
}

/// The health checks of a server's endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// How often an endpoint is checked, and how often its name is resolved again.
    pub every: Duration,
    /// What to GET; without it a connection is enough.
    pub get: Option<http::uri::PathAndQuery>,
}

/// What happens when a server loses a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long a client may wait for it; everything else about retries follows from this.
    pub budget: Duration,
    /// Whether it is recovered at all.
    pub on_loss: OnLoss,
    /// What is retried when it is not known whether it ran.
    pub replay: Replay,
    /// How long an endpoint that is no longer configured keeps its sessions.
    pub drain_timeout: Duration,
    /// How this server says that it lost a session, where it does not say so by the protocol.
    pub fingerprints: Vec<Fingerprint>,
}

/// What a lost session means to the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Nothing: the session is recovered.
    #[default]
    Recover,
    /// It gets a 404 and must re-initialize: for servers whose state matters.
    Tell,
}

/// What is retried when it is not known whether it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Replay {
    /// What is safe to repeat by the protocol or by the tool's own hints.
    #[default]
    Safe,
    /// Nothing.
    Never,
    /// What is safe, and these tools.
    Tools(Vec<String>),
}

/// An answer that means "I do not know this session".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// The HTTP status.
    pub status: http::StatusCode,
    /// The JSON-RPC error code, if it matters.
    pub code: Option<i64>,
    /// Text that the body contains, if it matters.
    pub text: Option<String>,
}

// === impl Server ===

impl Server {
    /// How long to wait for a connection by default.
    pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

    /// How long an idle session is left alone by default: servers end one after five minutes or more.
    pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(4 * 60);

    /// How long it may delay a list of a union by default.
    pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);

    /// What names begin with that a union has from this server, which is called `name`.
    pub fn prefix<'a>(&'a self, name: &'a ServerName) -> &'a str {
        self.prefix.as_deref().unwrap_or(name.as_ref())
    }

    /// Whether the operator configured a token for it.
    pub(crate) fn sets_token(&self) -> bool {
        self.headers.contains_key(http::header::AUTHORIZATION)
    }

    /// A server at this URL, with no headers of its own and defaults for the rest.
    pub fn from_url(text: &str) -> Result<Self, UrlProblem> {
        Ok(Self::at(Target::Url(url::parse(text)?)))
    }

    /// A server at one URL, or at several endpoints separated by commas.
    pub fn from_urls(text: &str) -> Result<Self, UrlProblem> {
        if !text.contains(',') {
            return Self::from_url(text);
        }
        let mut endpoints = Vec::new();
        for part in text.split(',') {
            let url = url::parse(part.trim()).map_err(|problem| match problem {
                UrlProblem::NotAbsolute => UrlProblem::PartNotAbsolute,
                other => other,
            })?;
            if endpoints.contains(&url) {
                return Err(UrlProblem::Twice);
            }
            endpoints.push(url);
        }
        Ok(Self::at(Target::Endpoints(endpoints)))
    }

    /// A server that is started as this process, with defaults for the rest.
    pub fn from_command(command: Command) -> Self {
        Self::at(Target::Command(command))
    }

    pub(super) fn at(target: Target) -> Self {
        Self {
            target,
            transport: Transport::default(),
            headers: http::HeaderMap::new(),
            forward_headers: Vec::new(),
            ca: None,
            connect_timeout: Self::CONNECT_TIMEOUT,
            call_timeout: None,
            health: Health::default(),
            keep_alive: Some(Self::KEEP_ALIVE),
            recovery: Recovery::default(),
            oauth: None,
            prefix: None,
            required: false,
            list_timeout: Self::LIST_TIMEOUT,
            tools: None,
        }
    }
}

// === impl Transport ===

impl Transport {
    /// How it is written in a file.
    pub(in crate::config) const NAMES: [&str; 3] = ["auto", "streamable-http", "sse"];

    /// The transport of this name.
    pub(in crate::config) fn named(name: &str) -> Option<Self> {
        match name {
            "auto" => Some(Self::Auto),
            "streamable-http" => Some(Self::StreamableHttp),
            "sse" => Some(Self::Sse),
            _ => None,
        }
    }
}

// === impl Recovery ===

impl Default for Recovery {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(30),
            on_loss: OnLoss::default(),
            replay: Replay::default(),
            drain_timeout: Duration::from_secs(10 * 60),
            fingerprints: Vec::new(),
        }
    }
}

// === impl Target ===

impl Target {
    /// The URLs, in the order in which they were written; none where the server is a process.
    pub fn urls(&self) -> &[http::Uri] {
        match self {
            Self::Url(url) => std::slice::from_ref(url),
            Self::Endpoints(urls) => urls,
            Self::Command(_) => &[],
        }
    }
}

// === impl Health ===

impl Default for Health {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(5),
            get: None,
        }
    }
}
