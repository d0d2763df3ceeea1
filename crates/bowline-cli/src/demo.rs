//! The built-in demo: a small stateful MCP server in two replicas, each on a loopback port of its
//! own and with sessions of its own.
//!
//! It stands behind the gateway like any other server, over a real connection, so that trying
//! Bowline shows what Bowline does. It keeps everything in memory, within bounds.

mod endpoint;
mod ledger;
mod protocol;
mod sessions;
#[cfg(test)]
mod tests;
mod tools;

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bowline::config::{NameProblem, Server, ServerName, UrlProblem};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(crate) use self::ledger::Ledger;
use self::sessions::Sessions;

/// How long a connection may rest between requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long accepting pauses when the process has no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The running demo server; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Demo {
    replicas: [SocketAddr; 2],
    _stop: DropGuard,
}

// === impl Demo ===

impl Demo {
    /// The name under which clients find it.
    pub(crate) const NAME: &str = "demo";

    /// Begins to serve on free ports.
    pub(crate) async fn start() -> io::Result<Self> {
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let replicas = [
            replica(&tracker, &stop).await?,
            replica(&tracker, &stop).await?,
        ];
        Ok(Self {
            replicas,
            _stop: stop.drop_guard(),
        })
    }

    /// Its name as the configuration has it.
    pub(crate) fn name() -> Result<ServerName, NameProblem> {
        Self::NAME.parse()
    }

    /// Its place in the configuration.
    pub(crate) fn server(&self) -> Result<Server, UrlProblem> {
        let urls = self
            .replicas
            .map(|address| format!("http://{address}{}", endpoint::PATH));
        Server::from_urls(&urls.join(","))
    }
}

/// Starts one replica and says where it is.
async fn replica(tracker: &TaskTracker, stop: &CancellationToken) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let sessions = Arc::new(Sessions::default());
    let serving = accept(listener, sessions, stop.clone(), tracker.clone());
    tracker.spawn(stop.clone().run_until_cancelled_owned(serving));
    Ok(address)
}

/// Does now what the first session would do: the first random number of a process takes tens of milliseconds.
pub(crate) fn warm_up() {
    if sessions::random_id().is_err() {
        tracing::error!("there is no randomness to be had");
    }
}

/// Serves one replica that counts in a ledger, for as long as the process lives.
pub(crate) async fn serve_replica(listener: TcpListener, ledger: Ledger) {
    let sessions = Arc::new(Sessions::counting_in(ledger));
    let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
    accept(listener, sessions, stop, tracker).await;
}

async fn accept(
    listener: TcpListener,
    sessions: Arc<Sessions>,
    stop: CancellationToken,
    tracker: TaskTracker,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let serving = connection(stream, Arc::clone(&sessions));
                tracker.spawn(stop.clone().run_until_cancelled_owned(serving));
            }
            Err(error) => {
                tracing::debug!(%error, "the demo cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, sessions: Arc<Sessions>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "the demo's client left at once");
        return;
    }
    let service = service_fn(|request| {
        let sessions = Arc::clone(&sessions);
        async move { Ok::<_, Infallible>(endpoint::serve(&sessions, request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection to the demo ended");
    }
}
