//! Upkeep of an upstream's endpoints: resolves their names and probes their health.
//!
//! The gateway calls [`Upstream::tend`] a few times a second. Work that is due runs in tasks of its
//! own, so that a name server or an endpoint that hangs delays nothing else.

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

use super::health::{Ailment, Health};
use super::{Endpoint, Pin};
use crate::config::{Server, Target};
use crate::upstream::Upstream;

/// How often each upstream is checked for work that is due.
pub(crate) const UPKEEP_INTERVAL: Duration = Duration::from_millis(250);

/// The schedule of the upkeep.
#[derive(Debug)]
pub(crate) struct Upkeep {
    next_due: Mutex<Instant>,
    resolving: AtomicBool,
    /// Whether names were resolved at least once.
    resolved: watch::Sender<bool>,
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            next_due: Mutex::new(Instant::now()),
            resolving: AtomicBool::new(false),
            resolved: watch::Sender::new(false),
        }
    }
}

impl Upkeep {
    /// Makes the work due now.
    pub(crate) fn run_now(&self) {
        *self.next_due.lock() = Instant::now();
    }

    /// Returns whether the regular work is due, and if so schedules the next.
    fn take_due(&self, every: Duration) -> bool {
        let mut next = self.next_due.lock();
        let due = *next <= Instant::now();
        if due {
            *next = Instant::now() + jittered(every);
        }
        due
    }
}

/// The result of a probe.
enum Probe {
    Well,
    /// Nothing accepts connections, for this reason.
    Absent(String),
    /// It answered with a failure.
    Failing(String),
    /// It accepts connections and does not answer.
    Silent,
    /// The probe says nothing about the endpoint.
    Nothing,
}

/// Whether endpoints have names, whose addresses may change.
fn has_names(server: &Server) -> bool {
    matches!(&server.target, Target::Endpoints(urls) if urls.iter().any(|url| Origin::of(url).is_named()))
}

/// The configured URL and the address of one endpoint.
type Site = (Uri, Origin);

impl Upstream {
    /// Starts the work that is due: resolves names and probes endpoints.
    pub(crate) fn tend(self: &Arc<Self>) {
        let server = self.config();
        self.endpoints.forget_drained();
        for endpoint in self.endpoints.all().iter() {
            if let Some(url) = endpoint.address.url() {
                url.pool.drop_stale();
            }
        }
        let due = self.upkeep.take_due(server.health.every);
        if due && has_names(&server) && !self.upkeep.resolving.swap(true, Ordering::AcqRel) {
            let upstream = Arc::clone(self);
            self.tracker.spawn(async move {
                upstream.resolve().await;
                upstream.upkeep.resolving.store(false, Ordering::Release);
            });
        }
        let regular =
            due && (server.health.get.is_some() || matches!(server.target, Target::Endpoints(_)));
        // An ejected endpoint is probed when its ejection is over, not before.
        let wanted = |endpoint: &Arc<Endpoint>| match endpoint.health.ailment() {
            // Nothing but the next session can try a command.
            _ if endpoint.address.url().is_none() => false,
            Some(_) => endpoint.health.needs_probe(),
            None => regular,
        };
        for endpoint in self
            .endpoints
            .all()
            .iter()
            .filter(|endpoint| wanted(endpoint))
        {
            if !endpoint.being_probed.swap(true, Ordering::AcqRel) {
                let (upstream, endpoint) = (Arc::clone(self), Arc::clone(endpoint));
                self.tracker.spawn(async move {
                    upstream.probe_endpoint(&endpoint).await;
                    endpoint.being_probed.store(false, Ordering::Release);
                });
            }
        }
    }

    /// An endpoint for a new session. Waits for names that were never resolved.
    pub(crate) async fn pick(&self) -> Result<Pin, Ailment> {
        self.pick_avoiding(None).await
    }

    /// The same, but avoids `this` if another endpoint is available.
    pub(crate) async fn pick_avoiding(&self, this: Option<&Endpoint>) -> Result<Pin, Ailment> {
        if *self.upkeep.resolved.borrow() {
            return self.endpoints.pick_avoiding(this);
        }
        let limit = self.config().connect_timeout;
        let mut resolved = self.upkeep.resolved.subscribe();
        let known = tokio::time::timeout(limit, resolved.wait_for(|resolved| *resolved));
        match known.await {
            Ok(_) => self.endpoints.pick_avoiding(this).inspect_err(|_| {
                self.endpoints.hurry();
            }),
            Err(_) => Err(Ailment::nowhere()),
        }
    }

    /// The endpoint with this id, if resolving the names again finds it.
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

    /// A connection to an endpoint failed: its name may now have another address.
    pub(crate) fn look_again(&self) {
        self.upkeep.run_now();
    }

    /// Sets the endpoints whose addresses need no resolution.
    pub(crate) fn place_endpoints(&self) {
        let server = self.config();
        let sites: Vec<Site> = match &server.target {
            Target::Url(url) => vec![(url.clone(), Origin::of(url))],
            Target::Endpoints(urls) => {
                let sites = urls.iter().map(|url| (url.clone(), Origin::of(url)));
                if sites.clone().any(|(_, origin)| origin.is_named()) {
                    // `resolve` sets those with names. Until then the known ones stay.
                    self.upkeep
                        .resolved
                        .send_replace(!self.endpoints.all().is_empty());
                    return;
                }
                sites.collect()
            }
            Target::Command(command) => {
                let wanted = vec![(Endpoint::id_of_command(command), command)];
                let make = |command| Endpoint::of_command(command, Health::default());
                self.endpoints.set(wanted, make);
                self.upkeep.resolved.send_replace(true);
                return;
            }
        };
        self.set_sites(sites);
    }

    /// Resolves every name. A name that cannot be resolved keeps its previous addresses.
    async fn resolve(&self) {
        let server = self.config();
        let limit = server.connect_timeout;
        let mut sites: Vec<Site> = Vec::new();
        for url in server.target.urls() {
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
                    tracing::warn!(server = %self.name, %origin, %error, "cannot resolve endpoint");
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
            .filter_map(|endpoint| Some((url.clone(), endpoint.address.url()?.origin.clone())))
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
        self.upkeep.resolved.send_replace(true);
    }

    /// Probes one endpoint and records the result.
    async fn probe_endpoint(&self, endpoint: &Endpoint) {
        let limit = self.config().connect_timeout;
        let is_silent = endpoint.health.ailment().is_some_and(|ill| ill.silent);
        match self.probe(endpoint, is_silent, limit).await {
            Probe::Well if endpoint.health.recovered() => {
                tracing::info!(server = %self.name, endpoint = %endpoint.address, "endpoint recovered");
            }
            Probe::Well | Probe::Nothing => {}
            Probe::Absent(reason) => self.note_unreachable(endpoint, &reason),
            Probe::Failing(reason) => self.note_failure(endpoint, &reason),
            Probe::Silent => self.note_hang(endpoint),
        }
    }

    /// Probes an endpoint that has not answered an `initialize` for long, and ejects it if it does
    /// not answer the probe either.
    pub(crate) async fn look_into_silence(&self, endpoint: &Endpoint, limit: Duration) {
        if matches!(self.probe(endpoint, true, limit).await, Probe::Silent) {
            self.note_hang(endpoint);
        }
    }

    /// A probe: a connection, or the configured GET. Never `initialize`: that would open sessions.
    /// Where a connection proves nothing, `OPTIONS *`, which is about the server and none of its
    /// resources (RFC 9110, 9.3.7): any answer is a sign of health.
    async fn probe(&self, endpoint: &Endpoint, wants_answer: bool, limit: Duration) -> Probe {
        let server = self.config();
        let Some(url) = endpoint.address.url() else {
            return Probe::Nothing;
        };
        let (method, target) = match &server.health.get {
            Some(target) => (Method::GET, target.clone()),
            None if wants_answer => (Method::OPTIONS, PathAndQuery::from_static("*")),
            None => {
                return match url.origin.dial(&self.tls, limit).await {
                    Ok(_) => Probe::Well,
                    Err(error) if error.nobody_there() => Probe::Absent(error.to_string()),
                    Err(_) => Probe::Nothing,
                };
            }
        };
        let mut head = Head::new(&method, &target);
        head.add(&HOST, &url.host);
        let request = head.alone();
        let path = target.path();
        match tokio::time::timeout(limit, url.pool.send(&request, limit)).await {
            Ok(Ok(answer)) if method == Method::OPTIONS || answer.status().is_success() => {
                Probe::Well
            }
            Ok(Ok(answer)) => {
                Probe::Failing(format!("{method} {path} answered {}", answer.status()))
            }
            Ok(Err(EgressError::OutOfSockets(_))) => Probe::Nothing,
            Ok(Err(error)) if error.may_have_run() => Probe::Failing(error.to_string()),
            Ok(Err(error)) => Probe::Absent(error.to_string()),
            Err(_) if wants_answer => Probe::Silent,
            Err(_) => Probe::Failing(format!("no answer to {method} {path} within {limit:?}")),
        }
    }

    pub(crate) fn note_unreachable(&self, endpoint: &Endpoint, reason: &str) {
        if endpoint.health.unreachable(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint is unreachable");
        }
        self.look_again();
    }

    /// An endpoint did not answer a message that servers answer immediately. A load balancer's
    /// address stands for several servers: the silence of one says nothing about the others.
    pub(crate) fn note_silence(&self, endpoint: &Endpoint, reason: &str) {
        if matches!(self.config().target, Target::Endpoints(_)) {
            self.note_failure(endpoint, reason);
        }
    }

    fn note_hang(&self, endpoint: &Endpoint) {
        let reason = "it accepts connections and does not answer";
        if endpoint.health.silent(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint does not answer");
        }
    }

    pub(crate) fn note_failure(&self, endpoint: &Endpoint, reason: &str) {
        if endpoint.health.failed(reason) {
            tracing::warn!(server = %self.name, endpoint = %endpoint.address, reason, "endpoint is failing");
        }
    }
}
