//! The metrics that are scraped, each with a description.

use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::labels::LabelNames;

/// What each name begins with.
const PREFIX: &str = "bowline";

/// The metrics of a gateway. Nothing is scraped that is not described.
#[derive(Debug)]
pub(super) struct Catalog {
    pub(super) registry: Registry,
    pub(super) descriptions: Vec<Description>,
}

/// What a metric is.
#[derive(Debug)]
pub(crate) struct Description {
    name: &'static str,
    pub(crate) kind: MetricType,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

/// A metric that knows the names of its labels.
pub(super) trait Labelled {
    const LABELS: &[&str];
}

impl<S: LabelNames, M, C: MetricConstructor<M>> Labelled for Family<S, M, C> {
    const LABELS: &[&str] = S::NAMES;
}

impl Labelled for Gauge {
    const LABELS: &[&str] = &[];
}

// === impl Catalog ===

impl Catalog {
    pub(super) fn new() -> Self {
        Self {
            registry: Registry::with_prefix(PREFIX),
            descriptions: Vec::new(),
        }
    }

    /// Adds a metric that starts empty.
    pub(super) fn add<M>(&mut self, name: &'static str, help: &'static str) -> M
    where
        M: Metric + Labelled + Clone + Default,
    {
        self.add_metric(name, help, M::default())
    }

    /// Adds this metric.
    pub(super) fn add_metric<M>(&mut self, name: &'static str, help: &'static str, metric: M) -> M
    where
        M: Metric + Labelled + Clone,
    {
        self.descriptions.push(Description {
            name,
            kind: metric.metric_type(),
            labels: M::LABELS,
            help,
        });
        self.registry.register(name, help, metric.clone());
        metric
    }
}

// === impl Description ===

impl Description {
    /// The metric's name as it is scraped.
    pub(crate) fn scraped_name(&self) -> String {
        let suffix = match self.kind {
            MetricType::Counter => "_total",
            _ => "",
        };
        format!("{PREFIX}_{}{suffix}", self.name)
    }
}
