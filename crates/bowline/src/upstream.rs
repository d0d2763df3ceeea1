//! A configured MCP server. This module speaks the server's transport and reports what happened; it
//! decides nothing.

mod credentials;
mod endpoints;
mod policy;
mod transports;

pub(crate) use credentials::Credentials;
pub(crate) use endpoints::{Endpoint, Errands, Moves, Pin, UPKEEP_INTERVAL};
pub(crate) use policy::{
    Audience, Carried, Epoch, LastList, LegHints, ListOver, ListTurn, ListedAgain, MAX_QUERY,
    OWN_LIST, Pages, Stored, WantedList, budget, count_safe, names_for_all, reserved,
};
pub(crate) use transports::{
    Answer, Conversation, Declination, Declined, EventSource, ForwardError, Frames,
    InitializeAnswer, Initialized, Issued, LegForward, LegOperation, Link, Listening, LiveChannels,
    LiveError, MAX_BATCH, MAX_HELD_ANSWER, NotSaid, Outcome, Passing, ProcessError, Pulse, Reading,
    Remote, Repeat, SMALL_ANSWER, SentAs, SourceError, SseError, Status, StreamError, Unread,
    UpstreamError, Whole, Whose, is_lie, is_wrong_transport, may_lie, poll_data,
};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bowline_egress::Tls;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use self::endpoints::{Endpoints, Upkeep, UrlAddress};
use self::policy::ToolHints;
use self::policy::reserved::Reserved;
use crate::caller::Caller;
use crate::callers::{Callers, Permitted};
use crate::config::{Server, ServerName, Target};
use crate::oauth::{Account, Flows};
use crate::owners::Owners;
use crate::peers::Peers;
use crate::share::{ServerShares, Share};
use crate::telemetry::{Metrics, ServerMetrics};

/// A configured MCP server and its endpoints.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: ServerName,
    pub(crate) endpoints: Endpoints,
    server: RwLock<Arc<Server>>,
    /// Whether its configuration has a filter of tools.
    filters_tools: AtomicBool,
    /// No longer configured: its sessions continue, but no new ones are opened.
    retired: AtomicBool,
    /// It has opened a GET stream, so it has a route for GET: a later refusal does not mean that it
    /// lacks one.
    opens_streams: AtomicBool,
    /// Which of its tools are safe to repeat.
    pub(crate) tool_hints: Arc<ToolHints>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) answered: ServerMetrics,
    /// Moves of its sessions away from draining endpoints.
    pub(crate) moves: Moves,
    /// Work that is due later.
    pub(crate) errands: Errands,
    /// How many requests and streams each of its callers may have in progress.
    pub(crate) streams: ServerShares,
    /// How many processes each of its callers may have, and how many there are.
    process_places: ServerShares,
    running: Arc<AtomicUsize>,
    channels: Arc<LiveChannels>,
    /// The other gateways, if they can be reached.
    peers: Option<Arc<Peers>>,
    /// How many of its processes may start at the same time.
    starts: Arc<Semaphore>,
    upkeep: Upkeep,
    /// Keys that its requests may not contain.
    pub(crate) reserved: Reserved,
    /// The sign-in flows, for callers of a server that requires sign-in.
    flows: Arc<Flows>,
    tls: Tls,
    tracker: TaskTracker,
    #[cfg(feature = "planted")]
    pub(crate) planted: crate::planted::Planted,
}

/// What all upstreams of a gateway share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) tls: &'a Tls,
    pub(crate) flows: &'a Arc<Flows>,
    pub(crate) tracker: &'a TaskTracker,
    pub(crate) metrics: &'a Arc<Metrics>,
    pub(crate) streams: &'a Arc<Share>,
    pub(crate) channels: &'a Arc<LiveChannels>,
    pub(crate) peers: Option<&'a Arc<Peers>>,
}

impl Upstream {
    /// The upstream that the configuration names. Names of endpoints are resolved by the first
    /// upkeep.
    pub(crate) fn new(name: ServerName, server: Server, surroundings: Surroundings<'_>) -> Self {
        let Surroundings {
            tls,
            flows,
            tracker,
            metrics,
            streams,
            channels,
            peers,
        } = surroundings;
        flows.auth_servers.know(&server);
        let server_tls = tls.of_server(server.ca.as_ref());
        let reserved = Reserved::new(&flows.settings().meta_prefix, &name);
        let upstream = Self {
            endpoints: Endpoints::default(),
            filters_tools: AtomicBool::new(server.tools.is_some()),
            server: RwLock::new(Arc::new(server)),
            retired: AtomicBool::new(false),
            opens_streams: AtomicBool::new(false),
            tool_hints: Arc::default(),
            answered: metrics.of_server(&name),
            metrics: Arc::clone(metrics),
            name,
            moves: Moves::default(),
            errands: Errands::default(),
            streams: ServerShares::of(streams),
            process_places: ServerShares::of(&channels.processes),
            running: Arc::default(),
            channels: Arc::clone(channels),
            peers: peers.map(Arc::clone),
            starts: transports::starts(),
            upkeep: Upkeep::default(),
            reserved,
            flows: Arc::clone(flows),
            tls: server_tls,
            tracker: tracker.clone(),
            #[cfg(feature = "planted")]
            planted: crate::planted::Planted::default(),
        };
        upstream.place_endpoints();
        upstream
    }

    /// The current configuration.
    pub(crate) fn config(&self) -> Arc<Server> {
        Arc::clone(&self.server.read())
    }

    /// Whether its configuration has a filter of tools.
    pub(crate) fn filters_tools(&self) -> bool {
        self.filters_tools.load(Ordering::Acquire)
    }

    /// Applies a new configuration. Endpoints that are no longer in it start to drain.
    pub(crate) fn reconfigure(&self, server: Server) {
        self.flows.auth_servers.know(&server);
        self.tls.trust(server.ca.as_ref());
        let is_another = identity(&server) != self.identity();
        let filters_tools = server.tools.is_some();
        // Both under the lock, so that no filter is overlooked that is configured already.
        {
            let mut current = self.server.write();
            *current = Arc::new(server);
            self.filters_tools.store(filters_tools, Ordering::Release);
        }
        if is_another {
            self.tool_hints.revoke_all();
        }
        self.retired.store(false, Ordering::Relaxed);
        self.endpoints
            .all()
            .iter()
            .filter_map(|endpoint| endpoint.address.url())
            .for_each(UrlAddress::forget_move);
        self.place_endpoints();
        self.upkeep.run_now();
    }

    /// How long a client may wait for a recovery.
    pub(crate) fn budget(&self) -> Duration {
        self.server.read().recovery.budget
    }

    /// Identifies the configured server whatever its name is: a hash of its URLs or its command and of the headers
    /// that Bowline adds to every request.
    pub(crate) fn identity(&self) -> Box<str> {
        identity(&self.config())
    }

    /// Whether an endpoint is part of the current configuration.
    pub(crate) fn is_configured(&self, endpoint: &Endpoint) -> bool {
        endpoint.is_on(&self.config().target)
    }

    /// The caller's account at this server, if the server requires sign-in.
    pub(crate) fn account(&self, caller: &Caller) -> Option<Arc<Account>> {
        let server = self.config();
        server.oauth.as_ref()?;
        let url = server.target.urls().first()?;
        let account = Account::new(&self.flows, caller, self.name.as_ref(), url);
        Some(Arc::new(account))
    }

    /// The configured callers.
    pub(crate) fn callers(&self) -> &Callers {
        &self.flows.callers
    }

    /// A caller's leave to use this server now.
    pub(crate) fn permit<'a>(&'a self, caller: &'a Caller) -> Option<Permitted<'a>> {
        self.flows.callers.permit(caller, &self.name)
    }

    /// Accepts no new sessions from now on.
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

    /// What a session's server said, counted among what waits in this gateway.
    pub(crate) fn unread(&self) -> Unread {
        Unread::among(self.channels.unread())
    }

    /// The gateways on the same store.
    fn owners(&self) -> &Owners {
        &self.channels.owners
    }

    /// How long a look at who is present may take. Less than any attempt takes: the server is not to blame for a
    /// slow store.
    fn look_limit(&self) -> Duration {
        budget::moment(&self.config()) / 2
    }

    pub(crate) fn tracker(&self) -> &TaskTracker {
        &self.tracker
    }

    /// Whether a new session would find an available endpoint.
    pub(crate) fn has_well_endpoint(&self) -> bool {
        self.endpoints
            .all()
            .iter()
            .any(|endpoint| endpoint.takes_sessions())
    }

    /// Whether a new session would find an available endpoint other than this.
    pub(crate) fn has_healthy_endpoint_besides(&self, this: &Endpoint) -> bool {
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

    /// How many processes run, where the server is a command.
    pub(crate) fn processes_running(&self) -> Option<usize> {
        let is_command = matches!(self.server.read().target, Target::Command(_));
        is_command.then(|| self.running.load(Ordering::Relaxed))
    }

    /// Whether sessions are still at an endpoint whose `drain_timeout` is over.
    pub(crate) fn has_overdue_sessions(&self) -> bool {
        let limit = self.config().recovery.drain_timeout;
        self.endpoints
            .all()
            .iter()
            .any(|endpoint| endpoint.sessions() > 0 && endpoint.has_drained_for(limit))
    }

    /// Closes idle connections, now and whenever one becomes idle.
    pub(crate) fn drop_idle_connections(&self) {
        self.endpoints
            .all()
            .iter()
            .filter_map(|endpoint| endpoint.address.url())
            .for_each(|url| url.pool.close_idle());
    }
}

fn identity(server: &Server) -> Box<str> {
    let mut parts: Vec<Vec<u8>> = Vec::new();
    parts.extend(
        server
            .target
            .urls()
            .iter()
            .map(|url| url.to_string().into()),
    );
    if let Target::Command(command) = &server.target {
        parts.push(command.identity().into_bytes());
    }
    for (name, value) in &server.headers {
        parts.push([name.as_str().as_bytes(), b": ", value.as_bytes()].concat());
    }
    // Sorted, because order does not matter. Neither a URL nor a header contains a line break.
    parts.sort();
    let digest = digest::digest(&digest::SHA256, &parts.join(&b'\n'));
    BASE64_URL_SAFE_NO_PAD.encode(digest).into()
}
