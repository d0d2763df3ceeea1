//! The context that ties a message to an upstream session, for any transport.

use std::sync::Arc;

use bowline_wire::version::Agreed;
use http::uri::PathAndQuery;

use super::conversation::{Conversation, HttpConversation, SseConversation};
use super::error::UpstreamError;
use super::live::{Live, Remote};
use super::pair::Pair;
use super::process::Process;
use crate::config::Command;
use crate::oauth::{Account, Bearer};
use crate::peers::Peers;
use crate::upstream::endpoints::{Address, Endpoint, UrlAddress};
use crate::upstream::policy::{Carried, ToolHints};
use crate::upstream::{Credentials, Upstream};

/// The context that ties a request to an upstream session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Link<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) conversation: &'a Conversation,
    pub(crate) version: Option<&'a Agreed>,
    /// What is forwarded from the client's request.
    pub(crate) carried: &'a Carried,
    /// The caller's account, if the server requires sign-in.
    pub(crate) account: Option<&'a Account>,
    /// With whose credentials the session and the cookies came about, if there are any. They are never sent with
    /// others.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) repeat: Repeat,
}

/// Whether a redirect may repeat a message that may already have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    Safe,
    Unsafe,
}

/// A link by the transport that it takes.
pub(super) enum Route<'a> {
    Http(HttpLink<'a>),
    HttpSse(SseLink<'a>),
    Stdio(StdioLink<'a>),
    Peer(PeerLink<'a>),
}

/// A link to a URL.
#[derive(Debug, Clone, Copy)]
pub(super) struct HttpLink<'a> {
    link: Link<'a>,
    pub(super) url: &'a UrlAddress,
    pub(super) http: &'a HttpConversation,
    /// Where messages go instead of the endpoint's own URL: the server named it for one session.
    pub(super) message_url: Option<&'a PathAndQuery>,
}

/// A link to a stream, and to the URL for its messages.
#[derive(Debug, Clone, Copy)]
pub(super) struct SseLink<'a> {
    http: HttpLink<'a>,
    pub(super) pair: &'a Live<Pair>,
}

/// A link to a process.
#[derive(Debug, Clone, Copy)]
pub(super) struct StdioLink<'a> {
    pub(super) endpoint: &'a Endpoint,
    pub(super) command: &'a Command,
    pub(super) stdio: &'a Live<Process>,
}

/// A link to a leg that another gateway has.
#[derive(Debug, Clone, Copy)]
pub(super) struct PeerLink<'a> {
    pub(super) peers: &'a Peers,
    pub(super) remote: &'a Remote,
    pub(super) carried: &'a Carried,
    pub(super) tools: &'a Arc<ToolHints>,
}

// === impl Link ===

impl<'a> Link<'a> {
    /// The transport that it takes. A conversation of another transport than its endpoint's is over.
    pub(super) fn route(self, upstream: &'a Upstream) -> Result<Route<'a>, UpstreamError> {
        let endpoint = self.endpoint;
        match (&endpoint.address, self.conversation) {
            (Address::Url(url), Conversation::StreamableHttp(http)) => Ok(Route::Http(HttpLink {
                link: self,
                url,
                http,
                message_url: None,
            })),
            (Address::Url(url), Conversation::HttpSse(SseConversation { http, pair })) => {
                if let Some(peer) = upstream.peer_link(pair.remote(), self.carried) {
                    return Ok(Route::Peer(peer));
                }
                let http = HttpLink {
                    link: self,
                    url,
                    http,
                    message_url: None,
                };
                Ok(Route::HttpSse(SseLink { http, pair }))
            }
            (Address::Command(command), Conversation::Stdio(stdio)) => {
                if let Some(peer) = upstream.peer_link(stdio.remote(), self.carried) {
                    return Ok(Route::Peer(peer));
                }
                Ok(Route::Stdio(StdioLink {
                    endpoint,
                    command,
                    stdio,
                }))
            }
            (Address::Url(_), Conversation::Stdio(_))
            | (Address::Command(_), Conversation::StreamableHttp(_) | Conversation::HttpSse(_)) => {
                Err(UpstreamError::SessionLost)
            }
        }
    }

    /// The same for a message that is safe to repeat.
    pub(crate) fn safe(self) -> Self {
        Self {
            repeat: Repeat::Safe,
            ..self
        }
    }

    /// Whether a request may carry this token of the caller, or none.
    pub(super) fn may_carry(&self, bearer: Option<&Bearer>) -> bool {
        let credentials = self.credentials;
        credentials.is_none_or(|credentials| credentials.continue_with(bearer))
    }
}

// === impl Upstream ===

impl Upstream {
    /// The way to a leg that another gateway has, if there is one.
    fn peer_link<'a>(
        &'a self,
        remote: Option<&'a Remote>,
        carried: &'a Carried,
    ) -> Option<PeerLink<'a>> {
        let (remote, peers) = (remote?, self.peers.as_deref()?);
        (!remote.owner.is_gone(self.owners())).then_some(PeerLink {
            peers,
            remote,
            carried,
            tools: &self.tool_hints,
        })
    }
}

// === impl SseLink ===

impl<'a> SseLink<'a> {
    /// A link for messages to this pair.
    pub(super) fn to(self, pair: &'a Pair) -> HttpLink<'a> {
        self.http.to(pair)
    }
}

// === impl HttpLink ===

impl<'a> HttpLink<'a> {
    /// The same for messages to this pair.
    pub(super) fn to(self, pair: &'a Pair) -> Self {
        Self {
            message_url: Some(pair.message_url()),
            ..self
        }
    }

    /// The request target.
    pub(super) fn target(self) -> PathAndQuery {
        match self.message_url {
            None => self.carried.target(&self.url.current_target()),
            Some(named) => self.carried.message_target(named, &self.url.target),
        }
    }

    /// Whether the request names the upstream's session, so that a 404 means that the session is unknown.
    pub(super) fn names_session(self) -> bool {
        self.http.session_id.is_some() || self.message_url.is_some()
    }

    /// The same for a message that is safe to repeat.
    pub(super) fn safe(self) -> Self {
        Self {
            link: self.link.safe(),
            ..self
        }
    }
}

impl<'a> std::ops::Deref for HttpLink<'a> {
    type Target = Link<'a>;

    fn deref(&self) -> &Link<'a> {
        &self.link
    }
}
