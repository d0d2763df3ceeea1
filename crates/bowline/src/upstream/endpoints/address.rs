//! The address of an endpoint, which determines its transport.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;

use crate::config::Command;
use bowline_egress::{Origin, Pool};

/// The address of an endpoint.
#[derive(Debug)]
pub(crate) enum Address {
    Url(UrlAddress),
    /// A process is started for each session.
    Command(Command),
}

/// A URL, and the connections to it.
#[derive(Debug)]
pub(crate) struct UrlAddress {
    pub(crate) origin: Origin,
    pub(crate) target: PathAndQuery,
    pub(crate) host: HeaderValue,
    pub(crate) pool: Pool,
    /// The target of a permanent redirect within the origin. The flag says whether there is one, so
    /// that most requests need no lock.
    moved_to: Mutex<Option<PathAndQuery>>,
    has_moved: AtomicBool,
}

// === impl Address ===

impl Address {
    /// The URL, if it is one.
    pub(crate) fn url(&self) -> Option<&UrlAddress> {
        match self {
            Self::Url(url) => Some(url),
            Self::Command(_) => None,
        }
    }
}

/// For operators: without the path of a URL and the arguments of a command, which may be secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.origin.fmt(f),
            Self::Command(command) => f.write_str(command.name()),
        }
    }
}

// === impl UrlAddress ===

impl UrlAddress {
    pub(crate) fn new(url: &Uri, origin: Origin, pool: Pool) -> Self {
        let authority = url.authority().map_or("", |authority| authority.as_str());
        let target = url.path_and_query().cloned();
        Self {
            target: target.unwrap_or_else(|| PathAndQuery::from_static("/")),
            host: HeaderValue::from_str(authority).unwrap_or_else(|_| HeaderValue::from_static("")),
            origin,
            pool,
            moved_to: Mutex::default(),
            has_moved: AtomicBool::new(false),
        }
    }

    /// The request target: the configured one, or that of a permanent redirect.
    pub(in crate::upstream) fn current_target(&self) -> Cow<'_, PathAndQuery> {
        let moved_to = match self.has_moved.load(Ordering::Acquire) {
            true => self.moved_to.lock().clone(),
            false => None,
        };
        moved_to.map_or(Cow::Borrowed(&self.target), Cow::Owned)
    }

    /// Remembers a permanent redirect.
    pub(in crate::upstream) fn move_to(&self, target: PathAndQuery) {
        *self.moved_to.lock() = Some(target);
        self.has_moved.store(true, Ordering::Release);
    }

    /// Returns to the configured target.
    pub(in crate::upstream) fn forget_move(&self) {
        self.has_moved.store(false, Ordering::Release);
        *self.moved_to.lock() = None;
    }
}
