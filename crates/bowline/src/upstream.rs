//! A configured MCP server: speaks its transport and reports what happened; decides nothing.

mod carried;
mod endpoints;
mod fingerprint;
mod health;
mod listing;
mod redirect;
mod streamable;
mod tend;
mod tools;

pub(crate) use carried::{Carried, MAX_QUERY};
pub(crate) use endpoints::{Endpoint, Pin};
pub(crate) use fingerprint::{is_fingerprint, is_suspect};
pub(crate) use health::{Ailment, jittered, random_fraction};
pub(crate) use streamable::{Answer, Link, Repeat};
pub(crate) use tend::TEND_EVERY;
pub(crate) use tools::{Epoch, Forgetting, Sharing, Stored};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_wire::id::BadUpstreamSessionId;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use parking_lot::RwLock;
use thiserror::Error;
use tokio_util::task::TaskTracker;

use self::endpoints::Endpoints;
use self::tend::Tending;
use self::tools::Tools;
use crate::body::ReadError;
use crate::config::{Server, ServerName};
use crate::egress::{EgressError, Tls, WireError};
use crate::leg::{Moves, Reserved, StreamError};
use crate::oauth::{Account, GrantError, Identities, SignIns, Wanted};
use crate::session::Caller;
use crate::share::{ServerShares, Share};
use crate::telemetry::{Answered, Metrics};

/// A configured MCP server and the ways to it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: ServerName,
    pub(crate) endpoints: Endpoints,
    server: RwLock<Arc<Server>>,
    /// No longer configured: its sessions go on, new ones are not opened.
    retired: AtomicBool,
    /// It has opened the stream of a GET: one that it refuses later is not for want of a route.
    opens_streams: AtomicBool,
    /// What is known of its tools.
    pub(crate) tools: Tools,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) answered: Answered,
    pub(crate) moves: Moves,
    /// How many requests and streams its callers may have under way.
    pub(crate) streams: ServerShares,
    tending: Tending,
    /// What its requests may not say.
    pub(crate) reserved: Reserved,
    /// Who signs its callers in, if it wants that.
    sign_ins: Arc<SignIns>,
    tls: Tls,
    tracker: TaskTracker,
    #[cfg(feature = "planted")]
    pub(crate) planted: crate::planted::Planted,
}

/// What went wrong with one request to an upstream.
#[derive(Debug, Error)]
pub(crate) enum UpstreamError {
    #[error(transparent)]
    NoAnswer(#[from] EgressError),
    #[error("unavailable: {}", .0.reason)]
    Unavailable(Ailment),
    #[error("the server no longer knows the session")]
    SessionLost,
    #[error("the server answered {0}, which for this server means that it lost the session")]
    Fingerprint(StatusCode),
    #[error("the session could not be recovered: {0}")]
    NotMended(Arc<str>),
    #[error("it is not known whether the request has run, and it may not run twice: {0}")]
    OutcomeUnknown(Arc<str>),
    #[error("the client has cancelled the request")]
    Cancelled,
    #[error("the server answered {0}: it wants credentials that Bowline does not have")]
    Refused(StatusCode),
    #[error("the caller has to sign in at this server")]
    SignIn(Arc<Wanted>),
    #[error("whether the caller is signed in at this server is not known: {0}")]
    Grant(#[from] GrantError),
    #[error(
        "the server answered {0}: only redirects within its own origin are followed; configure the address that it redirects to"
    )]
    Redirected(StatusCode),
    #[error(
        "the server answered {0} to a request that may not run twice, and that does not say whether it ran; configure the address that it redirects to"
    )]
    RedirectedAfter(StatusCode),
    #[error("the server redirected more than {0} times in a row")]
    TooManyRedirects(usize),
    #[error("the server answered {0} with something that is not MCP")]
    NotMcp(StatusCode),
    #[error(
        "the server's answer ({0}) is compressed ({1}), although Bowline asks for answers that are not: turn compression off for it"
    )]
    Compressed(StatusCode, Box<str>),
    #[error("the server refused the request with {}, so it did not run", .0.status)]
    Declined(Box<Declined>),
    #[error("the server's answer is not one to this request")]
    AnotherId,
    #[error("the server answered {0} to `initialize`")]
    NotOpened(StatusCode),
    #[error("the server answered {0} to GET")]
    NotListened(StatusCode),
    #[error("no session could be opened in time: {0}")]
    NotOpenedInTime(Arc<str>),
    #[error("the server neither answered nor made progress within {0:?}")]
    CallTimeout(Duration),
    #[error("the server did not take the message within {0:?}")]
    NotTaken(Duration),
    #[error("the server did not answer `initialize` within {0:?}")]
    InitializeTimeout(Duration),
    #[error("the server issued {0}")]
    BadSessionId(#[from] BadUpstreamSessionId),
    #[error("the server issued more than one session id")]
    SeveralSessionIds,
    #[error("the server's answer to `initialize` is not a JSON-RPC answer to it")]
    BadInitialize,
    #[error("the server's answer {0}")]
    BadBody(#[from] ReadError<WireError>),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

/// A refusal by status that is not the answer to the request.
#[derive(Debug)]
pub(crate) struct Declined {
    pub(crate) status: StatusCode,
    /// It may be meant for the session that the request named, rather than for the request.
    pub(crate) may_deny_session: bool,
    pub(crate) retry_after: Option<HeaderValue>,
    /// What the server said, where it is JSON-RPC.
    pub(crate) body: Option<Bytes>,
}

impl Upstream {
    /// The upstream that the configuration names. It looks for its endpoints once it is tended.
    pub(crate) fn new(
        name: ServerName,
        server: Server,
        tls: &Tls,
        sign_ins: Arc<SignIns>,
        tracker: TaskTracker,
        metrics: Arc<Metrics>,
        streams: &Arc<Share>,
    ) -> Self {
        sign_ins.authorities.know(&server);
        let server_tls = tls.of_server(server.ca.as_ref());
        let upstream = Self {
            endpoints: Endpoints::default(),
            server: RwLock::new(Arc::new(server)),
            retired: AtomicBool::new(false),
            opens_streams: AtomicBool::new(false),
            tools: Tools::default(),
            answered: metrics.of_server(&name),
            metrics,
            name,
            moves: Moves::default(),
            streams: ServerShares::of(streams),
            tending: Tending::default(),
            reserved: Reserved::new(&sign_ins.settings().meta_prefix),
            sign_ins,
            tls: server_tls,
            tracker,
            #[cfg(feature = "planted")]
            planted: crate::planted::Planted::default(),
        };
        upstream.place_endpoints();
        upstream
    }

    /// The configuration in force.
    pub(crate) fn server(&self) -> Arc<Server> {
        Arc::clone(&self.server.read())
    }

    /// Takes a new configuration over; endpoints that are no longer in it drain.
    pub(crate) fn reconfigure(&self, server: Server) {
        self.sign_ins.authorities.know(&server);
        self.tls.trust(server.ca.as_ref());
        let is_another = identity(&server) != self.identity();
        *self.server.write() = Arc::new(server);
        if is_another {
            self.tools.lose_all();
        }
        self.retired.store(false, Ordering::Relaxed);
        self.endpoints
            .all()
            .iter()
            .for_each(|endpoint| endpoint.forget_move());
        self.place_endpoints();
        self.tending.look_now();
    }

    /// How long a client may wait for its recovery.
    pub(crate) fn budget(&self) -> Duration {
        self.server.read().recovery.budget
    }

    /// Which server the configuration means, whatever its name: a hash of where it is and of what is
    /// said to it with every request.
    pub(crate) fn identity(&self) -> Box<str> {
        identity(&self.server())
    }

    /// Whether an endpoint is one of the server's by the configuration in force.
    pub(crate) fn is_configured(&self, endpoint: &Endpoint) -> bool {
        let server = self.server();
        let mut urls = server.way.urls().iter();
        urls.any(|url| endpoint.is_at(url))
    }

    /// A caller at this server, if it wants its callers signed in.
    pub(crate) fn account(&self, caller: &Caller) -> Option<Arc<Account>> {
        let server = self.server();
        server.oauth.as_ref()?;
        let url = server.way.urls().first()?;
        let account = Account::new(&self.sign_ins, caller, self.name.as_ref(), url);
        Some(Arc::new(account))
    }

    /// Who is configured.
    pub(crate) fn identities(&self) -> &Identities {
        &self.sign_ins.identities
    }

    /// Takes no new sessions from now on.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Relaxed)
    }

    pub(crate) fn note_stream(&self) {
        self.opens_streams.store(true, Ordering::Relaxed);
    }

    pub(crate) fn opens_streams(&self) -> bool {
        self.opens_streams.load(Ordering::Relaxed)
    }

    /// Where its tasks run.
    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Whether a new session would find a place.
    pub(crate) fn has_well_endpoint(&self) -> bool {
        self.endpoints
            .all()
            .iter()
            .any(|endpoint| endpoint.takes_sessions())
    }

    /// Whether a new session would find a place other than this.
    pub(crate) fn has_well_endpoint_but(&self, this: &Endpoint) -> bool {
        self.endpoints
            .all()
            .iter()
            .any(|endpoint| endpoint.takes_sessions() && endpoint.id != this.id)
    }

    /// How many sessions are pinned to any of its endpoints.
    pub(crate) fn sessions(&self) -> usize {
        self.endpoints
            .all()
            .iter()
            .map(|endpoint| endpoint.sessions())
            .sum()
    }

    /// Whether sessions are at an endpoint that was to have lost them by now.
    pub(crate) fn has_overdue_sessions(&self) -> bool {
        let limit = self.server().recovery.drain_timeout;
        self.endpoints
            .all()
            .iter()
            .any(|endpoint| endpoint.sessions() > 0 && endpoint.has_drained_for(limit))
    }

    /// Closes connections that rest, now and from now on.
    pub(crate) fn drop_idle_connections(&self) {
        self.endpoints
            .all()
            .iter()
            .for_each(|endpoint| endpoint.pool.close_idle());
    }
}

fn identity(server: &Server) -> Box<str> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    parts.extend(server.way.urls().iter().map(|url| url.to_string().into()));
    for (name, value) in &server.headers {
        parts.push([name.as_str().as_bytes(), b": ", value.as_bytes()].concat());
    }
    // The order means nothing; neither a URL nor a header has a line break.
    parts.sort();
    let digest = digest::digest(&digest::SHA256, &parts.join(&b'\n'));
    BASE64_URL_SAFE_NO_PAD.encode(digest).into()
}
