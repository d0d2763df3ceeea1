//! How an upstream identifies a leg: the part of a leg that belongs to its transport.

use std::sync::Arc;

use bowline_wire::id::UpstreamSessionId;
use parking_lot::Mutex;

use super::address::Address;
use super::live::Live;
use super::peer::Remote;
use super::stdio::Process;
use bowline_egress::Jar;

/// How an upstream identifies a leg.
#[derive(Debug)]
pub(crate) enum Conversation {
    StreamableHttp(HttpConversation),
    /// The process, which is the session.
    Stdio(Live<Process>),
}

/// The session id that a server issued, and the cookies.
#[derive(Debug)]
pub(crate) struct HttpConversation {
    pub(crate) session_id: Option<UpstreamSessionId>,
    pub(crate) jar: Mutex<Jar>,
}

/// What an upstream issues in answer to `initialize`.
#[derive(Debug)]
pub(crate) enum Issued {
    SessionId(Option<UpstreamSessionId>),
    Process(Arc<Process>),
}

impl Conversation {
    /// A conversation with the endpoint at this address, before `initialize`.
    pub(crate) fn new(address: &Address, jar: Jar) -> Self {
        Self::stored(address, None, jar, None)
    }

    /// The conversation that a record describes. A process is not in a record, but the gateway that owns it is.
    pub(crate) fn stored(
        address: &Address,
        session_id: Option<UpstreamSessionId>,
        jar: Jar,
        remote: Option<Remote>,
    ) -> Self {
        match address {
            Address::Url(_) => Self::http(session_id, jar),
            Address::Command(_) => Self::Stdio(Live::stored(remote)),
        }
    }

    pub(crate) fn http(session_id: Option<UpstreamSessionId>, jar: Jar) -> Self {
        Self::StreamableHttp(HttpConversation {
            session_id,
            jar: Mutex::new(jar),
        })
    }

    /// The same conversation with what the upstream issued.
    pub(crate) fn issued(self, issued: Issued) -> Self {
        match (self, issued) {
            (Self::StreamableHttp(http), Issued::SessionId(session_id)) => {
                Self::StreamableHttp(HttpConversation { session_id, ..http })
            }
            (_, Issued::Process(process)) => Self::Stdio(Live::Here(process)),
            (stdio @ Self::Stdio(_), Issued::SessionId(_)) => stdio,
        }
    }

    /// The session id that the upstream issued, if any.
    pub(crate) fn session_id(&self) -> Option<&UpstreamSessionId> {
        match self {
            Self::StreamableHttp(http) => http.session_id.as_ref(),
            Self::Stdio(_) => None,
        }
    }

    /// The cookies, where the transport has cookies.
    pub(crate) fn jar(&self) -> Option<&Mutex<Jar>> {
        match self {
            Self::StreamableHttp(http) => Some(&http.jar),
            Self::Stdio(_) => None,
        }
    }

    /// Whether the upstream has anything to end.
    pub(crate) fn can_be_ended(&self) -> bool {
        match self {
            Self::StreamableHttp(http) => http.session_id.is_some(),
            Self::Stdio(process) => !process.is_unopened(),
        }
    }

    /// Whether it lives in this process: no other gateway, nor this one after a restart, could go on with it.
    pub(crate) fn is_live(&self) -> bool {
        match self {
            Self::StreamableHttp(_) => false,
            Self::Stdio(process) => process.is_here(),
        }
    }

    /// Ends what lives in this process, at once. Nothing more is written to it.
    pub(crate) fn abandon(&self) {
        if let Self::Stdio(Live::Here(process)) = self {
            process.abandon();
        }
    }

    /// The gateway that owns what lives in one process, for a record that the gateway `me` writes.
    pub(crate) fn owner<'a>(&'a self, me: &'a str) -> Option<&'a str> {
        match self {
            Self::StreamableHttp(_) => None,
            Self::Stdio(process) => process.owner(me),
        }
    }

    /// Whether nothing can be sent on it.
    pub(crate) fn is_over(&self) -> bool {
        match self {
            Self::StreamableHttp(_) => false,
            Self::Stdio(process) => process.is_unopened(),
        }
    }

    /// A copy, for tasks that must not keep the leg alive.
    pub(crate) fn twin(&self) -> Self {
        match self {
            Self::StreamableHttp(http) => {
                Self::http(http.session_id.clone(), http.jar.lock().clone())
            }
            Self::Stdio(stdio) => Self::Stdio(stdio.clone()),
        }
    }
}
