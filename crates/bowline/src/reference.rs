//! What the generated reference lists, from the tables that the gateway itself uses.

use crate::fault::Reason;
use crate::front::status;
use crate::telemetry::Metrics;

/// A reason for which requests are refused.
#[derive(Debug)]
pub struct RefusalRow {
    /// Its name, in `data.reason`, in logs and in metrics.
    pub reason: &'static str,
    /// The HTTP status; `None` where it is the server's own.
    pub status: Option<u16>,
    /// Whether a request with an id gets status 200 and the error in the body.
    pub is_final: bool,
    /// The JSON-RPC error code.
    pub code: i64,
    /// Seconds in `Retry-After`, if it has one.
    pub retry_after: Option<u32>,
    /// `client`, `upstream` or `gateway`.
    pub blame: &'static str,
    /// The level of the log message.
    pub level: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// A metric.
#[derive(Debug, Clone)]
pub struct MetricRow {
    /// Its name as it is scraped.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub meaning: &'static str,
}

/// Every reason for which requests are refused.
pub fn refusals() -> Vec<RefusalRow> {
    let row = |row: &crate::fault::Row| RefusalRow {
        reason: row.name,
        status: match row.reason {
            Reason::UpstreamDeclined => None,
            reason => Some(status::of_reason(reason).as_u16()),
        },
        is_final: row.is_final,
        code: row.code,
        retry_after: row.retry.seconds(),
        blame: row.blame.name(),
        level: row.level.as_str(),
        meaning: row.meaning,
    };
    Reason::ROWS.iter().map(row).collect()
}

/// Every metric.
pub fn metrics() -> Vec<MetricRow> {
    let metrics = Metrics::new();
    let row = |description: &crate::telemetry::Description| MetricRow {
        name: description.scraped_name(),
        kind: description.kind.as_str().to_owned(),
        labels: description.labels,
        meaning: description.help,
    };
    metrics.descriptions().iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusals_are_those_of_the_guides() {
        let rows = refusals();
        let row = |reason| rows.iter().find(|row| row.reason == reason).unwrap();
        let unknown = row("unknown_session");
        assert_eq!((unknown.status, unknown.code), (Some(404), -32001));
        let uncertain = row("outcome_unknown");
        assert!(uncertain.is_final && uncertain.retry_after.is_none());
        assert_eq!(row("upstream_declined").status, None);
    }

    #[test]
    fn the_metrics_have_the_names_that_are_scraped() {
        for row in metrics() {
            assert!(row.name.starts_with("bowline_"), "{}", row.name);
            assert_eq!(row.name.ends_with("_total"), row.kind == "counter");
        }
    }
}
