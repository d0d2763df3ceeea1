//! Which fault a request meets, and how that is counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;

use super::Fault;
use crate::scripted::PATIENCE;

/// Which requests a rule applies to.
#[derive(Debug, Clone, Default)]
pub struct When {
    http: Option<Method>,
    rpc: Option<String>,
    tool: Option<String>,
}

/// A rule of the proxy. Dropping the handle leaves the rule active.
#[derive(Debug)]
pub struct Rule {
    number: u64,
    rules: Arc<Rules>,
    counts: watch::Receiver<Counts>,
}

/// How often a rule is to be applied.
#[derive(Debug, Clone, Copy)]
pub(super) enum Times {
    Left(usize),
    Always,
}

#[derive(Debug, Default)]
pub(super) struct Rules {
    listed: Mutex<Vec<Listed>>,
    numbers: AtomicU64,
    requests: AtomicU64,
}

#[derive(Debug)]
struct Listed {
    number: u64,
    when: When,
    fault: Fault,
    times: Times,
    counts: watch::Sender<Counts>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    met: usize,
    done: usize,
}

/// The parts of a request that rules match.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) method: Method,
    pub(super) message: Value,
}

/// A fault in progress. It counts as done when this is dropped.
#[derive(Debug)]
pub(super) struct Mark(Option<watch::Sender<Counts>>);

// === impl When ===

impl When {
    /// Any request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// A message of this JSON-RPC method.
    #[must_use]
    pub fn rpc(method: &str) -> Self {
        Self {
            rpc: Some(method.to_owned()),
            ..Self::default()
        }
    }

    /// A call of this tool.
    #[must_use]
    pub fn tool(name: &str) -> Self {
        Self {
            tool: Some(name.to_owned()),
            ..Self::rpc("tools/call")
        }
    }

    /// A request of this HTTP method.
    #[must_use]
    pub fn http(method: Method) -> Self {
        Self {
            http: Some(method),
            ..Self::default()
        }
    }

    fn fits(&self, seen: &Seen) -> bool {
        let named = |wanted: &Option<String>, found: &Value| {
            wanted.is_none() || found.as_str() == wanted.as_deref()
        };
        self.http.as_ref().is_none_or(|http| *http == seen.method)
            && named(&self.rpc, &seen.message["method"])
            && named(&self.tool, &seen.message["params"]["name"])
    }
}

// === impl Rule ===

impl Rule {
    /// How many requests it has matched so far.
    #[must_use]
    pub fn met(&self) -> usize {
        self.counts.borrow().met
    }

    /// How many of them are done: reset, cut, answered, or passed completely.
    #[must_use]
    pub fn done(&self) -> usize {
        self.counts.borrow().done
    }

    /// Waits until this many requests have matched.
    ///
    /// # Panics
    ///
    /// When they do not come.
    pub async fn until_met(&mut self, count: usize) {
        self.until(|counts| counts.met >= count).await;
    }

    /// Waits until it was done this often.
    ///
    /// # Panics
    ///
    /// When it is not.
    pub async fn until_done(&mut self, count: usize) {
        self.until(|counts| counts.done >= count).await;
    }

    #[expect(clippy::expect_used, reason = "a test that waits in vain has failed")]
    async fn until(&mut self, reached: impl FnMut(&Counts) -> bool) {
        let waited = tokio::time::timeout(PATIENCE, self.counts.wait_for(reached)).await;
        let reached = waited.expect("the rule to be met in time");
        reached.expect("the rule to be met before it was removed or spent");
    }

    /// Removes the rule.
    pub fn remove(self) {
        let mut listed = self.rules.listed.lock();
        listed.retain(|rule| rule.number != self.number);
    }
}

// === impl Rules ===

impl Rules {
    pub(super) fn add(rules: &Arc<Self>, times: Times, when: When, fault: Fault) -> Rule {
        let (sender, counts) = watch::channel(Counts::default());
        let number = rules.numbers.fetch_add(1, Ordering::Relaxed);
        rules.listed.lock().push(Listed {
            number,
            when,
            fault,
            times,
            counts: sender,
        });
        Rule {
            number,
            rules: Arc::clone(rules),
            counts,
        }
    }

    pub(super) fn clear(&self) {
        self.listed.lock().clear();
    }

    pub(super) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// What to do with a request.
    pub(super) fn meet(&self, seen: &Seen) -> (Fault, Mark) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut listed = self.listed.lock();
        let Some(place) = listed.iter().position(|rule| rule.when.fits(seen)) else {
            return (Fault::Pass, Mark(None));
        };
        let spent = match &mut listed[place].times {
            Times::Always => false,
            Times::Left(left) => {
                *left = left.saturating_sub(1);
                *left == 0
            }
        };
        let (fault, counts) = if spent {
            let rule = listed.remove(place);
            (rule.fault, rule.counts)
        } else {
            (listed[place].fault.clone(), listed[place].counts.clone())
        };
        counts.send_modify(|counts| counts.met += 1);
        (fault, Mark(Some(counts)))
    }
}

// === impl Seen ===

impl Seen {
    pub(super) fn new(method: Method, body: &Bytes) -> Self {
        Self {
            method,
            message: serde_json::from_slice(body).unwrap_or_default(),
        }
    }
}

// === impl Mark ===

impl Drop for Mark {
    fn drop(&mut self) {
        if let Some(counts) = &self.0 {
            counts.send_modify(|counts| counts.done += 1);
        }
    }
}
