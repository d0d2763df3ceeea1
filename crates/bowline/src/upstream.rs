//! A configured MCP server: speaks its transport and reports what happened; decides nothing.

mod carried;
mod streamable;

pub(crate) use carried::{Carried, MAX_QUERY};
pub(crate) use streamable::{Answer, Link};

use bowline_wire::id::BadUpstreamSessionId;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use thiserror::Error;
use tokio_util::task::TaskTracker;

use crate::body::ReadError;
use crate::config::{Server, ServerName};
use crate::egress::{EgressError, Origin, Pool, Tls};
use crate::leg::StreamError;

/// A configured MCP server and the way to it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) name: ServerName,
    origin: Origin,
    /// Path and query of the configured URL, kept as they were written.
    target: PathAndQuery,
    host: HeaderValue,
    headers: HeaderMap,
    /// Headers of a client's request that go along.
    pub(crate) forwarded: Box<[HeaderName]>,
    pool: Pool,
    #[cfg(feature = "planted")]
    pub(crate) planted: crate::planted::Planted,
}

/// What went wrong with one request to an upstream.
#[derive(Debug, Error)]
pub(crate) enum UpstreamError {
    #[error(transparent)]
    NoAnswer(#[from] EgressError),
    #[error("the server no longer knows the session")]
    SessionLost,
    #[error("the server answered {0}: it wants credentials that Bowline does not have")]
    Refused(StatusCode),
    #[error(
        "the server answered {0}: redirects are not followed; configure the address that it redirects to"
    )]
    Redirected(StatusCode),
    #[error("the server answered {0} with something that is not MCP")]
    NotMcp(StatusCode),
    #[error("the server issued {0}")]
    BadSessionId(#[from] BadUpstreamSessionId),
    #[error("the server issued more than one session id")]
    SeveralSessionIds,
    #[error("the server's answer to `initialize` is not a JSON-RPC answer to it")]
    BadInitialize,
    #[error("the server's answer has {0}")]
    BadBody(#[from] ReadError<hyper::Error>),
    #[error(transparent)]
    Stream(#[from] StreamError),
}

impl Upstream {
    /// The upstream that the configuration names.
    pub(crate) fn new(name: ServerName, server: &Server, tls: Tls, tracker: TaskTracker) -> Self {
        let url = &server.way.urls()[0];
        let origin = Origin::of(url);
        let authority = url.authority().map_or("", |authority| authority.as_str());
        Self {
            name,
            target: url
                .path_and_query()
                .cloned()
                .unwrap_or_else(|| PathAndQuery::from_static("/")),
            host: HeaderValue::from_str(authority).unwrap_or_else(|_| HeaderValue::from_static("")),
            headers: server.headers.clone(),
            forwarded: carried::allowed(server),
            pool: Pool::new(origin.clone(), tls, server.connect_timeout, tracker),
            origin,
            #[cfg(feature = "planted")]
            planted: crate::planted::Planted::default(),
        }
    }

    /// Closes connections that rest, now and from now on.
    pub(crate) fn drop_idle_connections(&self) {
        self.pool.close_idle();
    }

    /// Closes connections that rested for too long.
    pub(crate) fn drop_stale_connections(&self) {
        self.pool.drop_stale();
    }
}
