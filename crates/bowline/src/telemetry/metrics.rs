//! Every metric of the gateway, declared in one place, in Prometheus' text format.

use std::time::Duration;

use http::{Method, StatusCode};
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeLabelSet, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::config::ServerName;
use crate::gateway::Shared;
use crate::store::{Operation, StoreError};
use crate::upstream::Upstream;

/// Bounds of the histogram of answer times, in seconds.
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0, 120.0,
];

/// The same of the store's, which answers within milliseconds or not at all.
const STORE_SECONDS: [f64; 8] = [0.0005, 0.001, 0.0025, 0.01, 0.05, 0.25, 1.0, 5.0];

/// The gateway's metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<ServerLabel, Histogram>,
    refusals: Family<ReasonLabel, Counter>,
    sessions_opened: Family<ServerLabel, Counter>,
    sessions_ended: Family<EndLabels, Counter>,
    sessions: Family<ServerLabel, Gauge>,
    losses: Family<LossLabels, Counter>,
    recoveries: Family<RecoveryLabels, Counter>,
    recovery_seconds: Family<ServerLabel, Histogram>,
    replays: Family<ServerLabel, Counter>,
    refused_replays: Family<ServerLabel, Counter>,
    streams: Gauge,
    endpoint_up: Family<EndpointLabels, Gauge>,
    endpoint_sessions: Family<EndpointLabels, Gauge>,
    store_reachable: Family<KindLabel, Gauge>,
    near_cache_sessions: Family<KindLabel, Gauge>,
    near_cache_loads: Family<KindLabel, Counter>,
    store: StoreOperations,
}

/// What the store was asked.
#[derive(Debug, Clone)]
struct StoreOperations {
    outcomes: Family<OperationLabels, Counter>,
    seconds: Family<OperationLabel, Histogram>,
}

/// What one store's keeper counts in.
#[derive(Debug)]
pub(crate) struct StoreCounts {
    operations: StoreOperations,
    /// Sessions that were not at hand.
    pub(crate) loads: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ServerLabel {
    server: Name,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    server: Name,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    server: Name,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LossLabels {
    server: Name,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RecoveryLabels {
    server: Name,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndpointLabels {
    server: Name,
    endpoint: String,
}

/// What nearly every request of one server counts in, looked up once.
#[derive(Debug)]
pub(crate) struct Answered {
    ok: Counter,
    accepted: Counter,
    seconds: Histogram,
    pub(crate) sessions_opened: Counter,
}

/// A server's name as a label: shared, not copied.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name(ServerName);

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

fn store_histogram() -> Histogram {
    Histogram::new(STORE_SECONDS)
}

// === impl Metrics ===

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut registry = Registry::with_prefix("bowline");
        let build = Family::<Vec<(&str, &str)>, Gauge>::default();
        build
            .get_or_create(&vec![("version", env!("CARGO_PKG_VERSION"))])
            .set(1);
        registry.register("build", "The version that runs", build);
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let metrics = Self {
            registry: Registry::default(),
            requests: Family::default(),
            seconds,
            refusals: Family::default(),
            sessions_opened: Family::default(),
            sessions_ended: Family::default(),
            sessions: Family::default(),
            losses: Family::default(),
            recoveries: Family::default(),
            recovery_seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            replays: Family::default(),
            refused_replays: Family::default(),
            streams: Gauge::default(),
            endpoint_up: Family::default(),
            endpoint_sessions: Family::default(),
            store_reachable: Family::default(),
            near_cache_sessions: Family::default(),
            near_cache_loads: Family::default(),
            store: StoreOperations {
                outcomes: Family::default(),
                seconds: Family::new_with_constructor(store_histogram as fn() -> Histogram),
            },
        };
        registry.register(
            "requests",
            "Requests of clients by what they were answered",
            metrics.requests.clone(),
        );
        registry.register(
            "answer_seconds",
            "Time to the head of the answer to a POST",
            metrics.seconds.clone(),
        );
        registry.register(
            "refusals",
            "Requests that were not served, by reason",
            metrics.refusals.clone(),
        );
        registry.register(
            "sessions_opened",
            "Sessions opened",
            metrics.sessions_opened.clone(),
        );
        registry.register(
            "sessions_ended",
            "Sessions ended, by reason",
            metrics.sessions_ended.clone(),
        );
        registry.register(
            "sessions",
            "Sessions that are open",
            metrics.sessions.clone(),
        );
        registry.register(
            "losses",
            "Sessions met broken, by what was known",
            metrics.losses.clone(),
        );
        registry.register(
            "recoveries",
            "Mended sessions, by result",
            metrics.recoveries.clone(),
        );
        registry.register(
            "recovery_seconds",
            "Time that mending took",
            metrics.recovery_seconds.clone(),
        );
        registry.register(
            "replays",
            "Requests that went again",
            metrics.replays.clone(),
        );
        registry.register(
            "refused_replays",
            "Requests that might have run and may not run twice",
            metrics.refused_replays.clone(),
        );
        registry.register(
            "streams",
            "Requests and streams under way",
            metrics.streams.clone(),
        );
        registry.register(
            "endpoint_up",
            "Whether an endpoint takes sessions",
            metrics.endpoint_up.clone(),
        );
        registry.register(
            "endpoint_sessions",
            "Sessions pinned to an endpoint",
            metrics.endpoint_sessions.clone(),
        );
        registry.register(
            "store_operations",
            "What the store was asked, by outcome",
            metrics.store.outcomes.clone(),
        );
        registry.register(
            "store_seconds",
            "Time that the store took",
            metrics.store.seconds.clone(),
        );
        registry.register(
            "store_reachable",
            "Whether the store answered when it was last asked",
            metrics.store_reachable.clone(),
        );
        registry.register(
            "near_cache_sessions",
            "Sessions at hand that are in the store as well",
            metrics.near_cache_sessions.clone(),
        );
        registry.register(
            "near_cache_loads",
            "Sessions that were not at hand and were looked for in the store",
            metrics.near_cache_loads.clone(),
        );
        Self {
            registry,
            ..metrics
        }
    }

    /// What a store of this kind counts in.
    pub(crate) fn of_store(&self, kind: &'static str) -> StoreCounts {
        StoreCounts {
            operations: self.store.clone(),
            loads: self
                .near_cache_loads
                .get_or_create_owned(&KindLabel { kind }),
        }
    }

    /// What most requests of a server count in.
    pub(crate) fn of_server(&self, server: &ServerName) -> Answered {
        let posts = |status| self.requests_of(server, "POST", status);
        let server = Name(server.clone());
        Answered {
            ok: posts(StatusCode::OK),
            accepted: posts(StatusCode::ACCEPTED),
            seconds: self.seconds.get_or_create_owned(&ServerLabel {
                server: server.clone(),
            }),
            sessions_opened: self
                .sessions_opened
                .get_or_create_owned(&ServerLabel { server }),
        }
    }

    /// A client's request was answered.
    pub(crate) fn answered(
        &self,
        upstream: &Upstream,
        method: &Method,
        status: StatusCode,
        after: Duration,
    ) {
        let most = &upstream.answered;
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
                self.requests_of(&upstream.name, method, status).inc()
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
            server: Name(server.clone()),
            method,
            status: status.as_u16(),
        })
    }

    /// A request was not served.
    pub(crate) fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn session_ended(&self, server: &ServerName, reason: &'static str) {
        let server = Name(server.clone());
        self.sessions_ended
            .get_or_create(&EndLabels { server, reason })
            .inc();
    }

    /// A session was met broken: `lost`, or `unproven`.
    pub(crate) fn broke(&self, server: &ServerName, cause: &'static str) {
        let server = Name(server.clone());
        self.losses
            .get_or_create(&LossLabels { server, cause })
            .inc();
    }

    /// Mending it came to this.
    pub(crate) fn mended(&self, server: &ServerName, result: &'static str, took: Duration) {
        let server = Name(server.clone());
        let seconds = ServerLabel {
            server: server.clone(),
        };
        self.recovery_seconds
            .get_or_create(&seconds)
            .observe(took.as_secs_f64());
        self.recoveries
            .get_or_create(&RecoveryLabels { server, result })
            .inc();
    }

    /// A request goes again, or may not.
    pub(crate) fn replay(&self, server: &ServerName, goes: bool) {
        let labels = ServerLabel {
            server: Name(server.clone()),
        };
        let family = if goes {
            &self.replays
        } else {
            &self.refused_replays
        };
        family.get_or_create(&labels).inc();
    }

    /// All numbers as text; what is counted elsewhere is asked for now.
    pub(crate) fn scrape(&self, shared: &Shared) -> String {
        let in_use = shared.streams.taken_by_all();
        self.streams.set(i64::try_from(in_use).unwrap_or(i64::MAX));
        self.sessions.clear();
        self.endpoint_up.clear();
        self.endpoint_sessions.clear();
        let count = |sessions| i64::try_from(sessions).unwrap_or(i64::MAX);
        for upstream in shared.routes.all().values() {
            let server = Name(upstream.name.clone());
            self.sessions
                .get_or_create(&ServerLabel {
                    server: server.clone(),
                })
                .set(count(upstream.sessions()));
            for endpoint in upstream.endpoints.all().iter() {
                let labels = EndpointLabels {
                    server: server.clone(),
                    endpoint: endpoint.origin.to_string(),
                };
                self.endpoint_up
                    .get_or_create(&labels)
                    .set(endpoint.takes_sessions().into());
                self.endpoint_sessions
                    .get_or_create(&labels)
                    .set(count(endpoint.sessions()));
            }
        }
        if let Some(keeper) = shared.table.keeper() {
            let kind = KindLabel {
                kind: keeper.store.kind(),
            };
            self.store_reachable
                .get_or_create(&kind)
                .set(keeper.is_reachable().into());
            self.near_cache_sessions
                .get_or_create(&kind)
                .set(count(shared.table.count()));
        }
        let mut text = String::new();
        // Writing to a String cannot fail.
        _ = encode(&mut text, &self.registry);
        text
    }
}

// === impl StoreCounts ===

impl StoreCounts {
    /// The store was asked this, with this outcome.
    pub(crate) fn asked(&self, operation: Operation, error: Option<&StoreError>, took: Duration) {
        let operation = operation.name();
        let outcome = error.map_or("ok", StoreError::outcome);
        self.operations
            .outcomes
            .get_or_create(&OperationLabels { operation, outcome })
            .inc();
        self.operations
            .seconds
            .get_or_create(&OperationLabel { operation })
            .observe(took.as_secs_f64());
    }
}

impl prometheus_client::encoding::EncodeLabelValue for Name {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        let name: &str = self.0.as_ref();
        prometheus_client::encoding::EncodeLabelValue::encode(&name, encoder)
    }
}
