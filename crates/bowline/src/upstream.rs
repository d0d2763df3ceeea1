//! A configured MCP server: speaks its transport and reports what happened; decides nothing.

mod address;
pub(crate) mod budget;
mod carried;
mod conversation;
mod endpoints;
mod errands;
mod error;
mod health;
mod link;
mod moves;
mod outcome;
mod proof;
pub(crate) mod reserved;
mod streamable;
mod tool_hints;
mod transport;
mod upkeep;

pub(crate) use carried::{Carried, MAX_QUERY};
pub(crate) use conversation::Conversation;
pub(crate) use endpoints::{Endpoint, Pin};
pub(crate) use errands::Errands;
pub(crate) use error::{Declined, Status, StreamError, UpstreamError};
pub(crate) use health::Ailment;
pub(crate) use link::{Link, Repeat};
pub(crate) use moves::Moves;
pub(crate) use outcome::{
    Frames, MAX_HELD_ANSWER, Outcome, Pulse, Reading, SMALL_ANSWER, SentAs, Whole,
};
pub(crate) use proof::{Proof, Ran, SessionState};
pub(crate) use streamable::refusal::MAX_BATCH;
pub(crate) use streamable::{
    Declination, InitializeAnswer, Initialized, Listening, Passing, is_lie, may_lie, poll_data,
};
pub(crate) use tool_hints::{Audience, Epoch, Forgetting, Sharing, Stored};
pub(crate) use upkeep::TEND_EVERY;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_egress::Tls;
use parking_lot::RwLock;
use tokio_util::task::TaskTracker;

use self::endpoints::Endpoints;
use self::reserved::Reserved;
use self::tool_hints::ToolHints;
use self::upkeep::Tending;
use crate::caller::Caller;
use crate::config::{Server, ServerName};
use crate::oauth::{Account, CallerIdentities, Flows};
use crate::share::{ServerShares, Share};
use crate::telemetry::{Metrics, ServerMetrics};

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
    pub(crate) tool_hints: ToolHints,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) answered: ServerMetrics,
    /// Moves of its sessions off endpoints that drain.
    pub(crate) moves: Moves,
    /// What is to be done for it later.
    pub(crate) errands: Errands,
    /// How many requests and streams its callers may have under way.
    pub(crate) streams: ServerShares,
    tending: Tending,
    /// What its requests may not say.
    pub(crate) reserved: Reserved,
    /// Who signs its callers in, if it wants that.
    flows: Arc<Flows>,
    tls: Tls,
    tracker: TaskTracker,
    #[cfg(feature = "planted")]
    pub(crate) planted: crate::planted::Planted,
}

impl Upstream {
    /// The upstream that the configuration names. It looks for its endpoints once it is tended.
    pub(crate) fn new(
        name: ServerName,
        server: Server,
        tls: &Tls,
        flows: Arc<Flows>,
        tracker: TaskTracker,
        metrics: Arc<Metrics>,
        streams: &Arc<Share>,
    ) -> Self {
        flows.auth_servers.know(&server);
        let server_tls = tls.of_server(server.ca.as_ref());
        let upstream = Self {
            endpoints: Endpoints::default(),
            server: RwLock::new(Arc::new(server)),
            retired: AtomicBool::new(false),
            opens_streams: AtomicBool::new(false),
            tool_hints: ToolHints::default(),
            answered: metrics.of_server(&name),
            metrics,
            name,
            moves: Moves::default(),
            errands: Errands::default(),
            streams: ServerShares::of(streams),
            tending: Tending::default(),
            reserved: Reserved::new(&flows.settings().meta_prefix),
            flows,
            tls: server_tls,
            tracker,
            #[cfg(feature = "planted")]
            planted: crate::planted::Planted::default(),
        };
        upstream.place_endpoints();
        upstream
    }

    /// The configuration in force.
    pub(crate) fn config(&self) -> Arc<Server> {
        Arc::clone(&self.server.read())
    }

    /// Takes a new configuration over; endpoints that are no longer in it drain.
    pub(crate) fn reconfigure(&self, server: Server) {
        self.flows.auth_servers.know(&server);
        self.tls.trust(server.ca.as_ref());
        let is_another = identity(&server) != self.identity();
        *self.server.write() = Arc::new(server);
        if is_another {
            self.tool_hints.lose_all();
        }
        self.retired.store(false, Ordering::Relaxed);
        self.endpoints
            .all()
            .iter()
            .for_each(|endpoint| endpoint.address.url().forget_move());
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
        identity(&self.config())
    }

    /// Whether an endpoint is one of the server's by the configuration in force.
    pub(crate) fn is_configured(&self, endpoint: &Endpoint) -> bool {
        let server = self.config();
        let mut urls = server.way.urls().iter();
        urls.any(|url| endpoint.is_at(url))
    }

    /// A caller at this server, if it wants its callers signed in.
    pub(crate) fn account(&self, caller: &Caller) -> Option<Arc<Account>> {
        let server = self.config();
        server.oauth.as_ref()?;
        let url = server.way.urls().first()?;
        let account = Account::new(&self.flows, caller, self.name.as_ref(), url);
        Some(Arc::new(account))
    }

    /// Who is configured.
    pub(crate) fn identities(&self) -> &CallerIdentities {
        &self.flows.identities
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
        let limit = self.config().recovery.drain_timeout;
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
            .for_each(|endpoint| endpoint.address.url().pool.close_idle());
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
