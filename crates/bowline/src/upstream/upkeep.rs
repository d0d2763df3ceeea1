//! Looking after an upstream's endpoints: where they are, and how they feel.
//!
//! The gateway calls [`Upstream::tend`] a few times a second; what is due runs in tasks of its own,
//! so that a name server or an endpoint that hangs holds up nothing else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bowline_egress::{EgressError, Head, Origin, Pool};
use bowline_system::jitter::jittered;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{Method, Uri};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{Server, Way};
use crate::upstream::endpoints::Endpoint;
use crate::upstream::health::{Ailment, Health};
use crate::upstream::{Pin, Upstream, UpstreamError};

/// How often an upstream is asked whether anything is due.
pub(crate) const TEND_EVERY: Duration = Duration::from_millis(250);

/// What is due when.
#[derive(Debug)]
pub(crate) struct Tending {
    next_look: Mutex<Instant>,
    resolving: AtomicBool,
    /// Whether names were looked up at least once.
    resolved: watch::Sender<bool>,
}

impl Default for Tending {
    fn default() -> Self {
        Self {
            next_look: Mutex::new(Instant::now()),
            resolving: AtomicBool::new(false),
            resolved: watch::Sender::new(false),
        }
    }
}

impl Tending {
    /// Does what is due at the next opportunity.
    pub(crate) fn look_now(&self) {
        *self.next_look.lock() = Instant::now();
    }

    /// Whether the regular look is due; if so the next one is set.
    fn is_due(&self, every: Duration) -> bool {
        let mut next = self.next_look.lock();
        let due = *next <= Instant::now();
        if due {
            *next = Instant::now() + jittered(every);
        }
        due
    }
}

/// What a look found.
enum Look {
    Well,
    /// Nobody is there, for this reason.
    Absent(String),
    /// Somebody is, and is not well.
    Failing(String),
    /// Somebody is, who answers nothing.
    Silent,
    /// It says nothing of the endpoint.
    Nothing,
}

/// Whether endpoints follow from names, which may move.
fn has_names(server: &Server) -> bool {
    matches!(&server.way, Way::Endpoints(urls) if urls.iter().any(|url| Origin::of(url).is_named()))
}

/// Where one endpoint is to be.
type Site = (Uri, Origin);

impl Upstream {
    /// Does what is due: looks names up, and looks at endpoints.
    pub(crate) fn tend(self: &Arc<Self>) {
        let server = self.config();
        self.endpoints.forget_drained();
        for endpoint in self.endpoints.all().iter() {
            endpoint.address.url().pool.drop_stale();
        }
        let due = self.tending.is_due(server.health.every);
        if due && has_names(&server) && !self.tending.resolving.swap(true, Ordering::AcqRel) {
            let upstream = Arc::clone(self);
            self.tracker.spawn(async move {
                upstream.resolve().await;
                upstream.tending.resolving.store(false, Ordering::Release);
            });
        }
        let regular =
            due && (server.health.get.is_some() || matches!(server.way, Way::Endpoints(_)));
        // One that is left alone is looked at when its rest is over, not before.
        let wanted = |endpoint: &Arc<Endpoint>| match endpoint.health.ailment() {
            Some(_) => endpoint.health.wants_look(),
            None => regular,
        };
        for endpoint in self
            .endpoints
            .all()
            .iter()
            .filter(|endpoint| wanted(endpoint))
        {
            if !endpoint.being_looked_at.swap(true, Ordering::AcqRel) {
                let (upstream, endpoint) = (Arc::clone(self), Arc::clone(endpoint));
                self.tracker.spawn(async move {
                    upstream.look_at(&endpoint).await;
                    endpoint.being_looked_at.store(false, Ordering::Release);
                });
            }
        }
    }

    /// An endpoint for a new session. Names that were never looked up are waited for.
    pub(crate) async fn pick(&self) -> Result<Pin, UpstreamError> {
        self.pick_but(None).await
    }

    /// The same, and another than this if there is one.
    pub(crate) async fn pick_but(&self, this: Option<&Endpoint>) -> Result<Pin, UpstreamError> {
        if *self.tending.resolved.borrow() {
            let picked = self.endpoints.pick_but(this);
            return picked.map_err(UpstreamError::Unavailable);
        }
        let limit = self.config().connect_timeout;
        let mut resolved = self.tending.resolved.subscribe();
        let known = tokio::time::timeout(limit, resolved.wait_for(|resolved| *resolved));
        match known.await {
            Ok(_) => self.endpoints.pick().map_err(|ailment| {
                self.endpoints.hurry();
                UpstreamError::Unavailable(ailment)
            }),
            Err(_) => Err(UpstreamError::Unavailable(Ailment::nowhere())),
        }
    }

    /// The endpoint with this id, if another look at the names finds it.
    pub(crate) async fn look_for(&self, id: &str) -> Option<Pin> {
        let server = self.config();
        if !has_names(&server) {
            return None;
        }
        tokio::time::timeout(server.connect_timeout, self.resolve())
            .await
            .ok()?;
        self.endpoints.by_id(id)
    }

    /// A connection to an endpoint failed: its name may have moved.
    pub(crate) fn look_again(&self) {
        self.tending.look_now();
    }

    /// Places the endpoints whose addresses need no look-up.
    pub(crate) fn place_endpoints(&self) {
        let server = self.config();
        let sites: Vec<Site> = match &server.way {
            Way::Url(url) => vec![(url.clone(), Origin::of(url))],
            Way::Endpoints(urls) => {
                let sites = urls.iter().map(|url| (url.clone(), Origin::of(url)));
                if sites.clone().any(|(_, origin)| origin.is_named()) {
                    // Those with names follow from `resolve`; until then what is known stays.
                    self.tending
                        .resolved
                        .send_replace(!self.endpoints.all().is_empty());
                    return;
                }
                sites.collect()
            }
        };
        self.set_sites(sites);
    }

    /// Looks every name up. A name that cannot be looked up keeps the addresses that it had.
    async fn resolve(&self) {
        let server = self.config();
        let limit = server.connect_timeout;
        let mut sites: Vec<Site> = Vec::new();
        for url in server.way.urls() {
            let origin = Origin::of(url);
            if !origin.is_named() {
                sites.push((url.clone(), origin));
                continue;
            }
            let found = tokio::time::timeout(limit, origin.resolve()).await;
            match found.unwrap_or_else(|late| Err(late.into())) {
                Ok(addresses) => {
                    let at = |address: SocketAddr| (url.clone(), origin.at(address));
                    sites.extend(addresses.into_iter().map(at));
                }
                Err(error) => {
                    tracing::warn!(server = %self.name, %origin, %error, "cannot look up an endpoint");
                    sites.extend(self.known_sites(url));
                }
            }
        }
        self.set_sites(sites);
    }

    fn known_sites(&self, url: &Uri) -> Vec<Site> {
        let all = self.endpoints.all();
        let prefix = format!("{url}@");
        let known = all
            .iter()
            .filter(|endpoint| endpoint.id.starts_with(&prefix) && !endpoint.is_draining());
        known
            .map(|endpoint| (url.clone(), endpoint.address.url().origin.clone()))
            .collect()
    }

    fn set_sites(&self, sites: Vec<Site>) {
        let wanted = sites
            .into_iter()
            .map(|(url, origin)| (Endpoint::id(&url, &origin), (url, origin)));
        self.endpoints.set(wanted.collect(), |(url, origin)| {
            let pool = Pool::new(origin.clone(), self.tls.clone());
            Endpoint::at_url(&url, origin, pool, Health::default())
        });
        self.tending.resolved.send_replace(true);
    }

    /// Looks at one endpoint and notes what it found.
    async fn look_at(&self, endpoint: &Endpoint) {
        let limit = self.config().connect_timeout;
        let is_silent = endpoint.health.ailment().is_some_and(|ill| ill.silent);
        match self.look(endpoint, is_silent, limit).await {
            Look::Well if endpoint.health.recovered() => {
                tracing::info!(server = %self.name, endpoint = %endpoint.address, "endpoint is back");
            }
            Look::Well | Look::Nothing => {}
            Look::Absent(reason) => self.note_unreachable(endpoint, &reason),
            Look::Failing(reason) => self.note_failure(endpoint, &reason),
            Look::Silent => self.note_hang(endpoint),
        }
    }

    /// Finds out whether an endpoint that has left an `initialize` unanswered for long answers
    /// anything, and leaves it alone if it does not.
    pub(crate) async fn look_into_silence(&self, endpoint: &Endpoint, limit: Duration) {
        if matches!(self.look(endpoint, true, limit).await, Look::Silent) {
            self.note_hang(endpoint);
        }
    }

    /// A look: a connection, or the configured GET. Never `initialize`: that would open sessions.
    /// Where a connection says nothing, `OPTIONS *`, which is about the server and none of its
    /// resources (RFC 9110, 9.3.7): any answer will do.
    async fn look(&self, endpoint: &Endpoint, wants_answer: bool, limit: Duration) -> Look {
        let server = self.config();
        let (method, target) = match &server.health.get {
            Some(target) => (Method::GET, target.clone()),
            None if wants_answer => (Method::OPTIONS, PathAndQuery::from_static("*")),
            None => {
                return match endpoint.address.url().origin.dial(&self.tls, limit).await {
                    Ok(_) => Look::Well,
                    Err(error) if error.nobody_there() => Look::Absent(error.to_string()),
                    Err(_) => Look::Nothing,
                };
            }
        };
        let mut head = Head::new(&method, &target);
        head.add(&HOST, &endpoint.address.url().host);
        let request = head.alone();
        let path = target.path();
        match tokio::time::timeout(limit, endpoint.address.url().pool.send(&request, limit)).await {
            Ok(Ok(answer)) if method == Method::OPTIONS || answer.status().is_success() => {
                Look::Well
            }
            Ok(Ok(answer)) => {
                Look::Failing(format!("{method} {path} answered {}", answer.status()))
            }
            Ok(Err(EgressError::OutOfSockets(_))) => Look::Nothing,
            Ok(Err(error)) if error.may_have_run() => Look::Failing(error.to_string()),
            Ok(Err(error)) => Look::Absent(error.to_string()),
            Err(_) if wants_answer => Look::Silent,
            Err(_) => Look::Failing(format!("{method} {path} had no answer within {limit:?}")),
        }
    }

    pub(crate) fn note_unreachable(&self, endpoint: &Endpoint, reason: &str) {
        if endpoint.health.unreachable(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint is unreachable");
        }
        self.look_again();
    }

    /// An endpoint did not answer what every server answers at once. Behind a balancer's address are
    /// several servers: one that is silent says nothing of the rest.
    pub(crate) fn note_silence(&self, endpoint: &Endpoint, reason: &str) {
        if matches!(self.config().way, Way::Endpoints(_)) {
            self.note_failure(endpoint, reason);
        }
    }

    fn note_hang(&self, endpoint: &Endpoint) {
        let reason = "it takes connections and answers nothing";
        if endpoint.health.silent(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint hangs");
        }
    }

    pub(crate) fn note_failure(&self, endpoint: &Endpoint, reason: &str) {
        if endpoint.health.failed(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint is failing");
        }
    }
}
