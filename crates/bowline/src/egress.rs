//! The only way out: every outbound HTTP request is made here.
//!
//! One [`Pool`] belongs to one endpoint. It speaks HTTP/1.1 on connections of its own rather than
//! through a general client, because the gateway must know what a general client hides: whether a
//! failed request had begun to leave, and whether a connection that rested is still open now. And a
//! stream that rests for hours must hold no buffers.

mod cookies;
mod dial;
mod fetch;
mod names;
mod pool;
mod reach;
mod request;
mod wire;

pub(crate) use cookies::{Jar, Place};
pub(crate) use dial::{Origin, Tls};
pub(crate) use fetch::{Fetch, FetchError, Redirects};
pub(crate) use pool::{Pool, UpstreamBody};
pub(crate) use reach::Reach;
pub(crate) use request::{Head, Request};

use std::io;
use std::time::Duration;

use bowline_wire::http1::Malformed;
use thiserror::Error;

/// Why a request got no answer.
#[derive(Debug, Error)]
pub(crate) enum EgressError {
    /// The name has no address, or nobody there accepts connections.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// Neither accepted nor refused in time.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The connection broke before the request began to leave.
    #[error("the connection closed before the request was sent: {0}")]
    NotSent(WireError),
    /// The connection broke after the request began to leave and before its answer came.
    #[error("the connection broke before an answer came: {0}")]
    Broken(WireError),
}

/// Why a connection is of no use any more.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server closed it before its answer had ended.
    #[error("the server closed the connection")]
    Closed,
    #[error("the server's answer is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}

impl EgressError {
    /// Whether the server could not be reached at all.
    pub(crate) fn nobody_there(&self) -> bool {
        matches!(
            self,
            Self::Connect(_) | Self::ConnectTimeout(_) | Self::Tls(_)
        )
    }

    /// Whether the server may have seen the request.
    pub(crate) fn may_have_run(&self) -> bool {
        match self {
            Self::Broken(_) => true,
            Self::Connect(_) | Self::ConnectTimeout(_) | Self::Tls(_) | Self::NotSent(_) => false,
        }
    }
}
