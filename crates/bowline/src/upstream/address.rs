//! Where an endpoint is, and so which transport leads there.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use http::uri::PathAndQuery;
use http::{HeaderValue, Uri};
use parking_lot::Mutex;

use super::transport::Transport;
use bowline_egress::{Origin, Pool};

/// Where an endpoint is.
#[derive(Debug)]
pub(crate) enum Address {
    Url(UrlAddress),
}

/// A URL, and the connections to it.
#[derive(Debug)]
pub(crate) struct UrlAddress {
    pub(crate) origin: Origin,
    pub(crate) target: PathAndQuery,
    pub(crate) host: HeaderValue,
    pub(crate) pool: Pool,
    /// Where the server permanently redirected to, within its origin; and whether there is anything, so that
    /// most requests need no lock.
    moved_to: Mutex<Option<PathAndQuery>>,
    has_moved: AtomicBool,
}

// === impl Address ===

impl Address {
    /// The transport that leads there.
    pub(crate) fn transport(&self) -> Transport {
        match self {
            Self::Url(_) => Transport::StreamableHttp,
        }
    }

    /// The URL, for the transport that leads to one.
    pub(crate) fn url(&self) -> &UrlAddress {
        let Self::Url(url) = self;
        url
    }
}

/// What operators see: without the path, which may be secret.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.origin.fmt(f),
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

    /// Where requests go: the configured target, or the target of a permanent redirect.
    pub(super) fn current_target(&self) -> Cow<'_, PathAndQuery> {
        let moved_to = match self.has_moved.load(Ordering::Acquire) {
            true => self.moved_to.lock().clone(),
            false => None,
        };
        moved_to.map_or(Cow::Borrowed(&self.target), Cow::Owned)
    }

    /// The server has redirected permanently.
    pub(super) fn move_to(&self, target: PathAndQuery) {
        *self.moved_to.lock() = Some(target);
        self.has_moved.store(true, Ordering::Release);
    }

    /// Uses the configured target again.
    pub(super) fn forget_move(&self) {
        self.has_moved.store(false, Ordering::Release);
        *self.moved_to.lock() = None;
    }
}
