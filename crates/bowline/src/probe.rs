//! Examines an MCP server: what it speaks, what is wrong with it, and what Bowline would do with it. This is what
//! `bowline probe` does.
//!
//! A probe opens sessions like a client, through the same transport as a gateway, and ends them. It calls no tool.
//! What [the steps](examination) find is in the [report]; [the verdict](verdict) follows from that alone.

mod cookies;
mod examination;
mod findings;
mod http;
mod known;
mod mask;
mod peer;
mod report;
mod sign_in;
mod trouble;
mod verdict;

use std::time::Duration;

use tokio::time::Instant;

pub use self::report::{
    Cookie, Era, Finding, Listing, Offer, Pings, Report, ServerInfo, Sessions, Severity, SignIn,
    Step, Streams, Transport, UnknownId, Verdict,
};

use self::examination::Examination;
use self::mask::Mask;
use self::peer::Peer;
use crate::config::{Config, Server, ServerName, Target};
use crate::gateway::{Bridge, StartError};

/// How much of the time is kept for ending sessions, at the most.
const MAX_RESERVE: Duration = Duration::from_secs(2);

/// A server to examine.
#[derive(Debug)]
pub struct Probe {
    /// Settings for limits, OAuth and the store, where grants are kept.
    pub config: Config,
    /// The server's name in logs.
    pub name: ServerName,
    /// The server as people know it.
    pub shown: String,
    /// The server.
    pub server: Server,
    /// How long everything may take.
    pub timeout: Duration,
}

impl Probe {
    /// Examines the server, and reports each step. `None` if `stop` was done first; sessions are ended then, too.
    pub async fn run(
        self,
        progress: &(dyn Fn(Step) + Sync),
        stop: impl Future<Output = ()>,
    ) -> Result<Option<Report>, StartError> {
        let deadline = Instant::now() + self.timeout;
        let reserve = MAX_RESERVE.min(self.timeout / 10);
        let endpoints = self.server.target.urls().len();
        let server = alone(self.server);
        let mask = Mask::of(&server);
        let bridge = Bridge::start(self.config, self.name, server, None).await?;
        let Some(peer) = bridge.upstream().and_then(|upstream| {
            let endpoint = upstream.endpoints.pick_avoiding(None).ok()?;
            Some(Peer::new(upstream, endpoint))
        }) else {
            return Ok(None);
        };
        let mut examination = Examination::new(peer, &self.shown, progress);
        examination.report.endpoints = endpoints;
        let is_stopped = tokio::select! {
            ran = tokio::time::timeout_at(deadline - reserve, Box::pin(examination.run())) => {
                if ran.is_err() {
                    examination.note_timeout();
                }
                false
            }
            () = stop => true,
        };
        let ending = async {
            examination.end_all().await;
            bridge.stop().await;
        };
        // What does not end in time ends with this process.
        drop(tokio::time::timeout_at(deadline, Box::pin(ending)).await);
        if is_stopped {
            return Ok(None);
        }
        let mut report = examination.report;
        verdict::judge(&mut report);
        mask.apply(&mut report);
        Ok(Some(report))
    }
}

/// The server with one endpoint, and with OAuth, so that a 401 is understood; unless the operator gave credentials.
fn alone(server: Server) -> Server {
    let mut server = server;
    if let Target::Endpoints(urls) = &server.target
        && let Some(first) = urls.first()
    {
        server.target = Target::Url(first.clone());
    }
    let has_credentials = server.headers.contains_key(::http::header::AUTHORIZATION);
    if !server.target.urls().is_empty() && !has_credentials {
        server.oauth.get_or_insert_default();
    }
    server
}
