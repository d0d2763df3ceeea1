//! Every metric of the gateway, declared in one place, in Prometheus' text format.

mod catalog;
mod forwards;
mod labels;

use std::time::Duration;

use bowline_store::{Operation, StoreError};
use http::{Method, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use self::catalog::Catalog;
pub(crate) use self::catalog::Description;
use self::labels::{
    BuildLabels, EndLabels, EndpointLabels, ForwardLabels, KindLabels, LossLabels, NameLabel,
    OperationLabels, OutcomeLabels, ReasonLabels, RecoveryLabels, RequestLabels, ServerLabels,
};
use crate::config::ServerName;

/// Bounds of the histogram of answer times, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];

/// Those of the store, which answers within milliseconds or not at all.
const STORE_SECONDS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0];

/// The gateway's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    catalog: Catalog,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<ServerLabels, Histogram>,
    refusals: Family<ReasonLabels, Counter>,
    sessions_opened: Family<ServerLabels, Counter>,
    sessions_ended: Family<EndLabels, Counter>,
    sessions: Family<ServerLabels, Gauge>,
    losses: Family<LossLabels, Counter>,
    recoveries: Family<RecoveryLabels, Counter>,
    recovery_seconds: Family<ServerLabels, Histogram>,
    replays: Family<ServerLabels, Counter>,
    refused_replays: Family<ServerLabels, Counter>,
    streams: Gauge,
    endpoint_up: Family<EndpointLabels, Gauge>,
    endpoint_sessions: Family<EndpointLabels, Gauge>,
    processes: Family<ServerLabels, Gauge>,
    process_failures: Family<ServerLabels, Counter>,
    forwards: Family<ForwardLabels, Counter>,
    forwards_received: Family<ForwardLabels, Counter>,
    store_reachable: Family<KindLabels, Gauge>,
    near_cache_sessions: Family<KindLabels, Gauge>,
    near_cache_loads: Family<KindLabels, Counter>,
    store: StoreOperations,
}

/// What the store was asked.
#[derive(Debug, Clone)]
struct StoreOperations {
    outcomes: Family<OutcomeLabels, Counter>,
    seconds: Family<OperationLabels, Histogram>,
}

/// The metrics of one session store.
#[derive(Debug)]
pub(crate) struct StoreMetrics {
    operations: StoreOperations,
    /// Sessions that were not in the cache.
    pub(crate) loads: Counter,
}

/// What nearly every request of one server counts in, looked up once.
#[derive(Debug)]
pub(crate) struct ServerMetrics {
    ok: Counter,
    accepted: Counter,
    seconds: Histogram,
    pub(crate) sessions_opened: Counter,
}

/// What is counted elsewhere, at the time of a scrape.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Requests and streams in flight.
    pub(crate) streams: usize,
    pub(crate) servers: Vec<ServerSnapshot>,
    pub(crate) store: Option<StoreSnapshot>,
}

/// One server at the time of a scrape.
#[derive(Debug)]
pub(crate) struct ServerSnapshot {
    pub(crate) name: ServerName,
    pub(crate) sessions: usize,
    pub(crate) endpoints: Vec<EndpointSnapshot>,
    /// Processes, where the server is a command.
    pub(crate) processes: Option<usize>,
}

/// One endpoint at the time of a scrape.
#[derive(Debug)]
pub(crate) struct EndpointSnapshot {
    pub(crate) address: String,
    pub(crate) takes_sessions: bool,
    pub(crate) sessions: usize,
}

/// The store at the time of a scrape.
#[derive(Debug)]
pub(crate) struct StoreSnapshot {
    pub(crate) kind: &'static str,
    pub(crate) is_reachable: bool,
    pub(crate) cached_sessions: usize,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

fn store_histogram() -> Histogram {
    Histogram::new(STORE_SECONDS)
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut catalog = Catalog::new();
        let build: Family<BuildLabels, Gauge> = catalog.add("build", "The version that runs");
        build
            .get_or_create(&BuildLabels {
                version: env!("CARGO_PKG_VERSION"),
            })
            .set(1);
        Self {
            requests: catalog.add("requests", "Requests of clients, by method and status"),
            seconds: catalog.add_metric(
                "answer_seconds",
                "Time until the head of the response to a POST",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            refusals: catalog.add(
                "refusals",
                "Requests that were refused or failed, by reason",
            ),
            sessions_opened: catalog.add("sessions_opened", "Sessions opened"),
            sessions_ended: catalog.add("sessions_ended", "Sessions ended, by reason"),
            sessions: catalog.add("sessions", "Sessions that are open"),
            losses: catalog.add("losses", "Sessions found broken, by cause"),
            recoveries: catalog.add("recoveries", "Recoveries of sessions, by result"),
            recovery_seconds: catalog.add_metric(
                "recovery_seconds",
                "Time that recoveries took",
                Family::new_with_constructor(histogram as fn() -> Histogram),
            ),
            replays: catalog.add("replays", "Requests that were retried after a recovery"),
            refused_replays: catalog.add(
                "refused_replays",
                "Requests that may have run, are not safe to repeat and were not retried",
            ),
            streams: catalog.add("streams", "Requests and streams in flight"),
            endpoint_up: catalog.add("endpoint_up", "Whether an endpoint takes new sessions"),
            endpoint_sessions: catalog.add("endpoint_sessions", "Sessions pinned to an endpoint"),
            processes: catalog.add("processes", "Processes of a server with a `command`"),
            process_failures: catalog.add(
                "process_failures",
                "Processes that did not start, or exited before they answered `initialize`",
            ),
            forwards: catalog.add(
                "forwards",
                "Operations that were forwarded to the gateway that owns a session, by outcome",
            ),
            forwards_received: catalog.add(
                "forwards_received",
                "Operations that other gateways forwarded to this one, by outcome",
            ),
            store: StoreOperations {
                outcomes: catalog.add("store_operations", "Operations of the store, by outcome"),
                seconds: catalog.add_metric(
                    "store_seconds",
                    "Time that operations of the store took",
                    Family::new_with_constructor(store_histogram as fn() -> Histogram),
                ),
            },
            store_reachable: catalog.add(
                "store_reachable",
                "Whether the store answered the last operation",
            ),
            near_cache_sessions: catalog.add(
                "near_cache_sessions",
                "Sessions of the store that this gateway has in its cache",
            ),
            near_cache_loads: catalog.add(
                "near_cache_loads",
                "Sessions that were not in the cache and were looked up in the store",
            ),
            catalog,
        }
    }

    /// What each metric is.
    pub(crate) fn descriptions(&self) -> &[Description] {
        &self.catalog.descriptions
    }

    /// What a store of this kind counts in.
    pub(crate) fn of_store(&self, kind: &'static str) -> StoreMetrics {
        StoreMetrics {
            operations: self.store.clone(),
            loads: self
                .near_cache_loads
                .get_or_create_owned(&KindLabels { kind }),
        }
    }

    /// What most requests of a server count in.
    pub(crate) fn of_server(&self, server: &ServerName) -> ServerMetrics {
        let posts = |status| self.requests_of(server, "POST", status);
        let server = NameLabel(server.clone());
        ServerMetrics {
            ok: posts(StatusCode::OK),
            accepted: posts(StatusCode::ACCEPTED),
            seconds: self.seconds.get_or_create_owned(&ServerLabels {
                server: server.clone(),
            }),
            sessions_opened: self
                .sessions_opened
                .get_or_create_owned(&ServerLabels { server }),
        }
    }

    /// A client's request was answered.
    pub(crate) fn answered(
        &self,
        most: &ServerMetrics,
        server: &ServerName,
        method: &Method,
        status: StatusCode,
        after: Duration,
    ) {
        if *method == Method::POST {
            most.seconds.observe(after.as_secs_f64());
        }
        match (method, status) {
            (&Method::POST, StatusCode::OK) => most.ok.inc(),
            (&Method::POST, StatusCode::ACCEPTED) => most.accepted.inc(),
            _ => {
                let method = match *method {
                    Method::POST => "POST",
                    Method::GET => "GET",
                    Method::DELETE => "DELETE",
                    _ => "other",
                };
                self.requests_of(server, method, status).inc()
            }
        };
    }

    fn requests_of(
        &self,
        server: &ServerName,
        method: &'static str,
        status: StatusCode,
    ) -> Counter {
        self.requests.get_or_create_owned(&RequestLabels {
            server: NameLabel(server.clone()),
            method,
            status: status.as_u16(),
        })
    }

    /// A request was not served.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabels { reason }).inc();
    }

    pub(crate) fn session_ended(&self, server: &ServerName, reason: &'static str) {
        let server = NameLabel(server.clone());
        self.sessions_ended
            .get_or_create(&EndLabels { server, reason })
            .inc();
    }

    /// A session was found broken: `lost`, or `unproven`.
    pub(crate) fn broke(&self, server: &ServerName, cause: &'static str) {
        let server = NameLabel(server.clone());
        self.losses
            .get_or_create(&LossLabels { server, cause })
            .inc();
    }

    /// A recovery ended with this result.
    pub(crate) fn recovered(&self, server: &ServerName, result: &'static str, took: Duration) {
        let server = NameLabel(server.clone());
        let seconds = ServerLabels {
            server: server.clone(),
        };
        self.recovery_seconds
            .get_or_create(&seconds)
            .observe(took.as_secs_f64());
        self.recoveries
            .get_or_create(&RecoveryLabels { server, result })
            .inc();
    }

    /// A request is retried after a recovery, or may not be.
    pub(crate) fn replay(&self, server: &ServerName, is_retried: bool) {
        let labels = ServerLabels {
            server: NameLabel(server.clone()),
        };
        let family = if is_retried {
            &self.replays
        } else {
            &self.refused_replays
        };
        family.get_or_create(&labels).inc();
    }

    /// A process of a server could not be used.
    pub(crate) fn process_failed(&self, server: &ServerName) {
        let labels = ServerLabels {
            server: NameLabel(server.clone()),
        };
        self.process_failures.get_or_create(&labels).inc();
    }

    /// All numbers as text; what is counted elsewhere is given as it is now.
    pub(crate) fn scrape(&self, now: &Snapshot) -> String {
        let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
        self.streams.set(count(now.streams));
        self.sessions.clear();
        self.endpoint_up.clear();
        self.endpoint_sessions.clear();
        self.processes.clear();
        for one in &now.servers {
            let server = NameLabel(one.name.clone());
            self.sessions
                .get_or_create(&ServerLabels {
                    server: server.clone(),
                })
                .set(count(one.sessions));
            if let Some(processes) = one.processes {
                let server = server.clone();
                let labels = ServerLabels { server };
                self.processes.get_or_create(&labels).set(count(processes));
            }
            for endpoint in &one.endpoints {
                let labels = EndpointLabels {
                    server: server.clone(),
                    endpoint: endpoint.address.clone(),
                };
                self.endpoint_up
                    .get_or_create(&labels)
                    .set(endpoint.takes_sessions.into());
                self.endpoint_sessions
                    .get_or_create(&labels)
                    .set(count(endpoint.sessions));
            }
        }
        if let Some(store) = &now.store {
            let kind = KindLabels { kind: store.kind };
            self.store_reachable
                .get_or_create(&kind)
                .set(store.is_reachable.into());
            self.near_cache_sessions
                .get_or_create(&kind)
                .set(count(store.cached_sessions));
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        _ = encode(&mut text, &self.catalog.registry);
        text
    }
}

// === impl StoreMetrics ===

impl StoreMetrics {
    /// The store was asked this, with this outcome.
    pub(crate) fn asked(&self, operation: Operation, error: Option<&StoreError>, took: Duration) {
        let operation = operation.name();
        let outcome = error.map_or("ok", StoreError::outcome);
        self.operations
            .outcomes
            .get_or_create(&OutcomeLabels { operation, outcome })
            .inc();
        self.operations
            .seconds
            .get_or_create(&OperationLabels { operation })
            .observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
