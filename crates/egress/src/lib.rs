//! Outbound HTTP: every request that Bowline makes leaves through this crate.
//!
//! The upstreams' transports call it to send messages to MCP servers, and the sign-in code to reach
//! authorization servers ([`Fetch`]). It must not know MCP, sessions or the configuration, must not
//! repeat a request of which a byte was written, and depends on no crate of Bowline but `bowline-wire`
//! and `bowline-system`.
//!
//! One [`Pool`] belongs to one endpoint. It speaks HTTP/1.1 on connections of its own rather than
//! through a general client, because the gateway must know what a general client hides: whether any
//! byte of a failed request was written, and whether an idle connection is still open now. And a
//! stream that is idle for hours must hold no buffers.

mod body;
mod certificates;
mod cookies;
mod dial;
mod fetch;
mod names;
mod pool;
mod reach;
mod request;
mod wire;

pub use body::{ReadError, Sent, read_limited};
pub use certificates::{Certificates, CertificatesError};
pub use cookies::{CookieUrl, Jar};
pub use dial::{Origin, Tls};
pub use fetch::{Fetch, FetchError, Redirects};
pub use pool::{Pool, UpstreamBody};
pub use reach::Reach;
pub use request::{Condition, Head, Request};

use std::io;
use std::time::Duration;

use bowline_wire::http1::Malformed;
use thiserror::Error;

/// Error codes of the system for exhausted resources that the standard library has no name for: ENFILE,
/// EMFILE and ENOBUFS.
const OWN_LIMITS: [i32; 3] = [23, 24, if cfg!(target_os = "linux") { 105 } else { 55 }];

/// Why a request was not answered.
#[derive(Debug, Error)]
pub enum EgressError {
    /// The name has no address, or nothing accepts connections there.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// This machine has no resources left for a connection: not the server's fault.
    #[error("this gateway has no descriptors, ports or buffers left for a connection: {0}")]
    OutOfSockets(io::Error),
    /// The connection was neither accepted nor refused in time.
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    /// The TLS handshake failed.
    #[error("TLS handshake failed: {0}")]
    Tls(io::Error),
    /// The connection broke before any byte of the request was written.
    #[error("the connection closed before the request was sent: {0}")]
    NotSent(WireError),
    /// The connection broke after a byte of the request was written and before the answer arrived.
    #[error("the connection broke before an answer came: {0}")]
    Broken(WireError),
}

/// Why a connection cannot be used any more.
#[derive(Debug, Error)]
pub enum WireError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server closed it before its answer was complete.
    #[error("the server closed the connection")]
    Closed,
    /// The server speaks HTTP/2 only, so it cannot have read the request.
    #[error(
        "the server speaks HTTP/2 only, and Bowline speaks HTTP/1.1 to servers: configure an address where it does, too"
    )]
    Http2,
    /// What the request depends on was not so any more when it was about to be written.
    #[error("the request was withheld")]
    Withheld,
    /// The server's answer is not HTTP.
    #[error("the server's answer is not HTTP: {0}")]
    Malformed(#[from] Malformed),
}

impl EgressError {
    /// Why there is no connection: because of the server, or of this machine.
    fn not_connected(error: io::Error) -> Self {
        let is_own = matches!(
            error.kind(),
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory
        );
        let code = error.raw_os_error();
        match is_own || code.is_some_and(|code| OWN_LIMITS.contains(&code)) {
            true => Self::OutOfSockets(error),
            false => Self::Connect(error),
        }
    }

    /// Whether the server could not be reached at all.
    pub fn nobody_there(&self) -> bool {
        matches!(
            self,
            Self::Connect(_) | Self::ConnectTimeout(_) | Self::Tls(_)
        )
    }

    /// Whether the server may have run the request.
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Broken(WireError::Http2) => false,
            Self::Broken(_) => true,
            Self::Connect(_)
            | Self::OutOfSockets(_)
            | Self::ConnectTimeout(_)
            | Self::Tls(_)
            | Self::NotSent(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_descriptors_or_ports_is_nobody_elses_fault() {
        for code in [12, 23, 24, 99, 105] {
            let error = EgressError::not_connected(io::Error::from_raw_os_error(code));
            assert!(!error.nobody_there() && !error.may_have_run(), "{error}");
        }
        let refused = EgressError::not_connected(io::Error::from_raw_os_error(111));
        assert!(refused.nobody_there());
    }
}
