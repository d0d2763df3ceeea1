//! Refusal reasons and metrics, from the tables that the gateway itself uses.

use bowline::reference::{self, MetricRow, RefusalRow};

use crate::page::{head, row};

/// Every reason for which a request is refused.
pub(crate) fn refusals() -> String {
    let mut text = head(["reason", "HTTP", "JSON-RPC", "`Retry-After`", "meaning"]);
    for refusal in reference::refusals() {
        let name = format!("`{}`", refusal.reason);
        let code = refusal.code.to_string();
        let retry = refusal
            .retry_after
            .map_or_else(String::new, |seconds| format!("{seconds} s"));
        text.push_str(&row([
            &name,
            &status(&refusal),
            &code,
            &retry,
            refusal.meaning,
        ]));
    }
    text + "\n"
}

/// The status of a refusal. A final error about a request that was sent is in the body of a 200.
fn status(refusal: &RefusalRow) -> String {
    match (refusal.status, refusal.is_final) {
        (None, _) => "the server's".to_owned(),
        (Some(status), true) => format!("200; {status} without an id"),
        (Some(status), false) => status.to_string(),
    }
}

/// Every metric.
pub(crate) fn metrics() -> String {
    let mut text = head(["metric", "kind", "labels", "meaning"]);
    for MetricRow {
        name,
        kind,
        labels,
        meaning,
    } in reference::metrics()
    {
        let labels = labels.iter().map(|label| format!("`{label}`"));
        let labels = labels.collect::<Vec<_>>().join(", ");
        text.push_str(&row([&format!("`{name}`"), &kind, &labels, meaning]));
    }
    text + "\n"
}
