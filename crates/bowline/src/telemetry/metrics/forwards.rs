//! What gateways forward to each other, counted.

use super::Metrics;
use super::labels::ForwardLabels;

impl Metrics {
    /// An operation was forwarded to another gateway.
    pub(crate) fn forwarded(&self, outcome: &'static str) {
        self.forwards
            .get_or_create(&ForwardLabels { outcome })
            .inc();
    }

    /// Another gateway forwarded an operation, or somebody who is none.
    pub(crate) fn forward_received(&self, outcome: &'static str) {
        let received = &self.forwards_received;
        received.get_or_create(&ForwardLabels { outcome }).inc();
    }
}
