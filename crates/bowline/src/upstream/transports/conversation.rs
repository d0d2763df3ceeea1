//! How an upstream identifies a leg: the part of a leg that belongs to its transport.

use std::net::IpAddr;
use std::sync::Arc;

use bowline_wire::id::UpstreamSessionId;
use parking_lot::Mutex;

use super::live::{Live, Remote};
use super::pair::Pair;
use super::process::Process;
use crate::upstream::endpoints::Address;
use bowline_egress::Jar;

/// How an upstream identifies a leg.
#[derive(Debug)]
pub(crate) enum Conversation {
    StreamableHttp(HttpConversation),
    HttpSse(SseConversation),
    /// The process, which is the session.
    Stdio(Live<Process>),
}

/// The session id that a server issued, and the cookies.
#[derive(Debug)]
pub(crate) struct HttpConversation {
    pub(crate) session_id: Option<UpstreamSessionId>,
    pub(crate) jar: Mutex<Jar>,
    /// Where the server was reached: its name may have several addresses, and the session is at one of them.
    pub(super) home: Mutex<Option<IpAddr>>,
}

/// The stream, which is the session, and the cookies.
#[derive(Debug)]
pub(crate) struct SseConversation {
    pub(crate) http: HttpConversation,
    pub(crate) pair: Live<Pair>,
}

/// What an upstream issues in answer to `initialize`.
#[derive(Debug)]
pub(crate) enum Issued {
    SessionId(Option<UpstreamSessionId>),
    Process(Arc<Process>),
    /// The server speaks HTTP+SSE.
    Pair(Arc<Pair>),
}

impl Conversation {
    /// A conversation with the endpoint at this address, before `initialize`.
    pub(crate) fn new(address: &Address, jar: Jar) -> Self {
        Self::stored(address, None, jar, None)
    }

    /// The conversation that a record describes. What lives in one gateway is not in a record, but its owner is: so a
    /// session at a URL that has an owner is one of HTTP+SSE.
    pub(crate) fn stored(
        address: &Address,
        session_id: Option<UpstreamSessionId>,
        jar: Jar,
        remote: Option<Remote>,
    ) -> Self {
        match (address, &remote) {
            (Address::Url(_), None) => Self::http(session_id, jar),
            (Address::Url(_), Some(_)) => Self::HttpSse(SseConversation {
                http: HttpConversation::new(None, jar),
                pair: Live::stored(remote),
            }),
            (Address::Command(_), _) => Self::Stdio(Live::stored(remote)),
        }
    }

    pub(crate) fn http(session_id: Option<UpstreamSessionId>, jar: Jar) -> Self {
        Self::StreamableHttp(HttpConversation::new(session_id, jar))
    }

    /// The same conversation with what the upstream issued.
    pub(crate) fn issued(self, issued: Issued) -> Self {
        match (self, issued) {
            (Self::StreamableHttp(http), Issued::SessionId(session_id)) => {
                Self::StreamableHttp(HttpConversation { session_id, ..http })
            }
            (_, Issued::Process(process)) => Self::Stdio(Live::Here(process)),
            (
                Self::StreamableHttp(http) | Self::HttpSse(SseConversation { http, .. }),
                Issued::Pair(pair),
            ) => {
                let pair = Live::Here(pair);
                Self::HttpSse(SseConversation { http, pair })
            }
            (other, Issued::SessionId(_) | Issued::Pair(_)) => other,
        }
    }

    /// The session id that the upstream issued, if any.
    pub(crate) fn session_id(&self) -> Option<&UpstreamSessionId> {
        match self {
            Self::StreamableHttp(http) => http.session_id.as_ref(),
            Self::HttpSse(_) | Self::Stdio(_) => None,
        }
    }

    /// The cookies, where the transport has cookies.
    pub(crate) fn jar(&self) -> Option<&Mutex<Jar>> {
        match self {
            Self::StreamableHttp(http) | Self::HttpSse(SseConversation { http, .. }) => {
                Some(&http.jar)
            }
            Self::Stdio(_) => None,
        }
    }

    /// Where the server was reached, where that is an address.
    pub(crate) fn home(&self) -> Option<IpAddr> {
        match self {
            Self::StreamableHttp(http) => *http.home.lock(),
            Self::HttpSse(_) | Self::Stdio(_) => None,
        }
    }

    /// The same conversation, whose server was reached at this address.
    pub(crate) fn at_home(self, home: Option<IpAddr>) -> Self {
        if let Self::StreamableHttp(http) = &self {
            *http.home.lock() = home;
        }
        self
    }

    /// Whether the upstream has anything to end.
    pub(crate) fn can_be_ended(&self) -> bool {
        match self {
            Self::StreamableHttp(http) => http.session_id.is_some(),
            Self::HttpSse(SseConversation { pair, .. }) => !pair.is_unopened(),
            Self::Stdio(process) => !process.is_unopened(),
        }
    }

    /// Whether it lives in this process: no other gateway, nor this one after a restart, could go on with it.
    pub(crate) fn is_live(&self) -> bool {
        match self {
            Self::StreamableHttp(_) => false,
            Self::HttpSse(sse) => sse.pair.is_here(),
            Self::Stdio(process) => process.is_here(),
        }
    }

    /// Whether it lives in another gateway.
    pub(crate) fn is_elsewhere(&self) -> bool {
        match self {
            Self::StreamableHttp(_) => false,
            Self::HttpSse(sse) => sse.pair.remote().is_some(),
            Self::Stdio(process) => process.remote().is_some(),
        }
    }

    /// Has this told where the server's word is received that its tools have changed, if that is here. Over streamable
    /// HTTP it is received where a client reads it.
    pub(crate) fn watch_tools(&self, watcher: impl Fn() + Send + Sync + 'static) {
        match self {
            Self::HttpSse(SseConversation {
                pair: Live::Here(pair),
                ..
            }) => pair.watch_tools(Box::new(watcher)),
            Self::Stdio(Live::Here(process)) => process.watch_tools(Box::new(watcher)),
            Self::StreamableHttp(_) | Self::HttpSse(_) | Self::Stdio(_) => {}
        }
    }

    /// Sends nothing more on what lives in this process: the session has a newer generation. What streamable HTTP
    /// still sends is refused by the server or belongs to its session, and a process has ended by now.
    pub(crate) fn replace(&self) {
        if let Self::HttpSse(SseConversation {
            pair: Live::Here(pair),
            ..
        }) = self
        {
            pair.replace();
        }
    }

    /// Ends what lives in this process, at once. Nothing more is written to it.
    pub(crate) fn abandon(&self) {
        match self {
            Self::StreamableHttp(_) => {}
            Self::HttpSse(SseConversation { pair, .. }) => {
                if let Live::Here(pair) = pair {
                    pair.abandon();
                }
            }
            Self::Stdio(process) => {
                if let Live::Here(process) = process {
                    process.abandon();
                }
            }
        }
    }

    /// The gateway that owns what lives in one process, for a record that the gateway `me` writes.
    pub(crate) fn owner<'a>(&'a self, me: &'a str) -> Option<&'a str> {
        match self {
            Self::StreamableHttp(_) => None,
            Self::HttpSse(sse) => sse.pair.owner(me),
            Self::Stdio(process) => process.owner(me),
        }
    }

    /// Whether nothing can be sent on it.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::StreamableHttp(_) => false,
            Self::HttpSse(sse) => sse.pair.is_unopened(),
            Self::Stdio(process) => process.is_unopened(),
        }
    }

    /// A copy, for tasks that must not keep the leg alive.
    pub(crate) fn twin(&self) -> Self {
        match self {
            Self::StreamableHttp(http) => Self::StreamableHttp(http.twin()),
            Self::HttpSse(sse) => Self::HttpSse(SseConversation {
                http: sse.http.twin(),
                pair: sse.pair.clone(),
            }),
            Self::Stdio(stdio) => Self::Stdio(stdio.clone()),
        }
    }
}

// === impl HttpConversation ===

impl HttpConversation {
    fn new(session_id: Option<UpstreamSessionId>, jar: Jar) -> Self {
        Self {
            session_id,
            jar: Mutex::new(jar),
            home: Mutex::default(),
        }
    }

    fn twin(&self) -> Self {
        Self {
            session_id: self.session_id.clone(),
            jar: Mutex::new(self.jar.lock().clone()),
            home: Mutex::new(*self.home.lock()),
        }
    }
}
