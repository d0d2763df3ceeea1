//! One running copy of the server: its name, its sessions, its numbers, and how it is served.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::routing::get;
use axum::serve::ListenerExt;
use axum::{Json, Router, middleware};
use rmcp::ServiceExt as _;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::handler::{Everything, Shared};
use super::observed::{Observed, observe};
use super::part::Part;
use super::sessions::Sessions;

/// Where the MCP endpoint is.
pub const PATH: &str = "/mcp";

/// Where the counters are served as JSON, for programs that are not Rust.
const OBSERVED_PATH: &str = "/observed";

const LOOPBACK_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

const LOOPBACK_ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// A handle to one replica. Clones share everything.
#[derive(Debug, Clone)]
pub struct Replica {
    name: Arc<str>,
    part: Part,
    sessions: Arc<Sessions>,
    observed: Arc<Observed>,
}

// === impl Replica ===

impl Replica {
    /// A replica without sessions; `name` is what its tool `whoami` answers.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>) -> Self {
        Self {
            name: name.into(),
            part: Part::All,
            sessions: Arc::default(),
            observed: Arc::default(),
        }
    }

    /// The same with a part of the features.
    #[must_use]
    pub fn with_part(self, part: Part) -> Self {
        Self { part, ..self }
    }

    /// The same, and a session ends that nobody uses for this time.
    #[must_use]
    pub fn with_idle_limit(self, limit: Duration) -> Self {
        Self {
            sessions: Arc::new(Sessions::with_idle_limit(limit)),
            ..self
        }
    }

    /// The replica's counters.
    #[must_use]
    pub fn observed(&self) -> &Observed {
        &self.observed
    }

    /// How many MCP sessions are alive at the moment.
    pub async fn live_sessions(&self) -> usize {
        self.sessions.count().await
    }

    pub(super) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    fn shared(&self) -> Shared {
        Shared::new(self.name.clone(), self.part, self.sessions.clone())
    }

    pub(super) fn router(&self, stop: CancellationToken) -> Router {
        let config = StreamableHttpServerConfig::default()
            .with_allowed_hosts(LOOPBACK_HOSTS)
            .with_allowed_origins(LOOPBACK_ORIGINS)
            .with_cancellation_token(stop);
        let shared = Arc::new(self.shared());
        let service = StreamableHttpService::new(
            move || Ok(Everything::new(shared.clone())),
            self.sessions.clone(),
            config,
        );
        Router::new()
            .route_service(PATH, service)
            .layer(middleware::from_fn_with_state(self.clone(), observe))
            // Outside the layer, so that reading the counters does not count.
            .route(OBSERVED_PATH, get(told).with_state(self.clone()))
    }
}

async fn told(State(replica): State<Replica>) -> Json<Value> {
    let observed = replica.observed();
    Json(json!({
        "requests": observed.requests(),
        "initializes": observed.initializes(),
        "not_found": observed.not_found(),
        "strays": observed.strays(),
    }))
}

/// Serves `replica` on stdin and stdout, as one session, until stdin ends.
///
/// # Errors
///
/// When the client does not initialize.
pub async fn serve_stdio(replica: Replica) -> anyhow::Result<()> {
    let shared = Arc::new(replica.shared());
    let serving = Everything::new(shared)
        .serve(rmcp::transport::stdio())
        .await?;
    serving.waiting().await?;
    Ok(())
}

/// Serves `replica` on `listener` until `stop`, then ends its streams and its sessions.
///
/// # Errors
///
/// When the listener fails for good.
pub async fn serve(
    listener: TcpListener,
    replica: Replica,
    stop: CancellationToken,
) -> io::Result<()> {
    // Without it an SSE response, which is two small writes, waits 40 ms for a delayed acknowledgement.
    let listener = listener.tap_io(|socket| {
        if let Err(error) = socket.set_nodelay(true) {
            tracing::warn!(%error, "cannot set TCP_NODELAY");
        }
    });
    let served = axum::serve(listener, replica.router(stop.clone()))
        .with_graceful_shutdown(stop.cancelled_owned())
        .await;
    replica.sessions.close_all().await;
    served
}
