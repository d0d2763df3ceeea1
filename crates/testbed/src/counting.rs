//! A small stateful MCP server that counts: what ran how often, for whom, and with which settings.
//!
//! Sessions are in its memory. It can lose them, crash, and restart on the same port. Several replicas
//! share a [`Tally`] of executions, by the `key` argument of each call, so that "at most once" can be
//! asserted over all of them. At `/sse` it speaks HTTP+SSE. It uses none of the gateway's code.

mod over_sse;
mod resting;
mod serve;
mod session;
mod stream;
mod tally;
#[cfg(test)]
mod tests;
mod tools;

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use self::resting::{Rest, Resting};
pub use self::session::Session;
use self::session::Sessions;
pub use self::tally::{Execution, Tally};
pub(crate) use self::tools::{TURN, list_changed, listing, turning};
use crate::faulty::{Canned, Port};

/// One replica.
#[derive(Debug)]
pub struct Counting {
    port: Port,
    replica: Arc<Replica>,
    listening: Mutex<Option<AbortOnDropHandle<()>>>,
    life: Mutex<Life>,
}

/// How a replica responds, for tests that need something special. It survives a crash.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The version in its response to `initialize`; otherwise the requested one.
    pub version: Option<String>,
    /// Whether it has the tools that only some tests use.
    pub all_tools: bool,
    /// Whether its JSON is sent in chunks.
    pub chunked: bool,
    /// Its capabilities.
    pub capabilities: Value,
    /// The response to a request in an unknown session.
    pub lost: Canned,
    /// Whether it speaks HTTP+SSE at `/either`; otherwise streamable HTTP.
    pub either_is_sse: bool,
    /// Whether it writes a slash as `\/`.
    pub escapes_slashes: bool,
}

#[derive(Debug)]
struct Replica {
    name: String,
    tally: Tally,
    settings: Mutex<Settings>,
    resting: Resting,
    sessions: Sessions,
    initializes: AtomicU64,
    deletes: AtomicU64,
    strays: AtomicU64,
    births: Mutex<Vec<Instant>>,
    stream_births: Mutex<Vec<Instant>>,
}

/// Why the server ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It was idle for too long.
    Idle,
    /// The replica crashes.
    Dead,
}

/// The state between two crashes.
#[derive(Debug, Clone, Default)]
struct Life {
    over: CancellationToken,
    tasks: TaskTracker,
}

// === impl Counting ===

impl Counting {
    /// A replica on a free loopback port. Its name is part of the session ids that it issues.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn start(name: &str, tally: &Tally) -> io::Result<Self> {
        let counting = Self {
            port: Port::reserve()?,
            replica: Arc::new(Replica {
                name: name.to_owned(),
                tally: tally.clone(),
                settings: Mutex::default(),
                resting: Resting::default(),
                sessions: Sessions::default(),
                initializes: AtomicU64::new(0),
                deletes: AtomicU64::new(0),
                strays: AtomicU64::new(0),
                births: Mutex::default(),
                stream_births: Mutex::default(),
            }),
            listening: Mutex::default(),
            life: Mutex::default(),
        };
        counting.come_back()?;
        Ok(counting)
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.replica.name
    }

    /// Where it listens, even after a crash.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Its MCP endpoint.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }

    /// The same over HTTP+SSE.
    #[must_use]
    pub fn sse_url(&self) -> String {
        format!("http://{}{}", self.address(), over_sse::PATH)
    }

    /// Changes how it responds.
    pub fn settings(&self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.replica.settings.lock());
    }

    /// From now on closes idle connections, each after a random time of at most `longest` since its last
    /// response.
    pub fn close_idle_connections(&self, longest: Duration, seed: u64) {
        self.replica.resting.limit(longest, seed);
    }

    /// How many idle connections it closed.
    #[must_use]
    pub fn closed_idle(&self) -> u64 {
        self.replica.resting.closed()
    }

    /// Loses every session and continues to run. Calls in progress continue.
    pub fn forget_sessions(&self) {
        self.replica.sessions.forget();
    }

    /// Crashes: the listener closes, every connection is reset, calls stop, all sessions are lost. All
    /// of this has happened when this returns.
    pub async fn die(&self) {
        let listening = self.listening.lock().take();
        if let Some(listening) = listening {
            listening.abort();
            _ = listening.await;
        }
        let life = std::mem::take(&mut *self.life.lock());
        life.over.cancel();
        life.tasks.close();
        life.tasks.wait().await;
        self.replica.sessions.forget();
    }

    /// Restarts on the same port.
    ///
    /// # Errors
    ///
    /// When the port is not available.
    pub fn come_back(&self) -> io::Result<()> {
        let mut listening = self.listening.lock();
        if listening.is_none() {
            let life = self.life.lock().clone();
            let accepting = accept(self.port.listen()?, Arc::clone(&self.replica), life);
            let task = TaskTracker::new().spawn(accepting);
            *listening = Some(AbortOnDropHandle::new(task));
        }
        Ok(())
    }

    /// How many sessions were opened, including those before a crash.
    #[must_use]
    pub fn initializes(&self) -> u64 {
        self.replica.initializes.load(Ordering::Relaxed)
    }

    /// When its sessions were opened, in this order.
    #[must_use]
    pub fn births(&self) -> Vec<Instant> {
        self.replica.births.lock().clone()
    }

    /// The same for its sessions over HTTP+SSE.
    #[must_use]
    pub fn stream_births(&self) -> Vec<Instant> {
        self.replica.stream_births.lock().clone()
    }

    /// Ends the streams of all sessions over HTTP+SSE, and the sessions with them. Calls in progress continue.
    pub fn cut_streams(&self) {
        self.replica.sessions.cut_streams();
    }

    /// Restarts with HTTP+SSE at `/either`, or with streamable HTTP: every session is lost.
    pub fn restart_with(&self, either_is_sse: bool) {
        self.settings(|settings| settings.either_is_sse = either_is_sse);
        self.cut_streams();
        self.forget_sessions();
    }

    /// How many known sessions were ended by a DELETE.
    #[must_use]
    pub fn deletes(&self) -> u64 {
        self.replica.deletes.load(Ordering::Relaxed)
    }

    /// How many requests named unknown sessions.
    #[must_use]
    pub fn strays(&self) -> u64 {
        self.replica.strays.load(Ordering::Relaxed)
    }

    /// The known sessions, oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<Session> {
        self.replica.sessions.all()
    }

    /// Sends a message on the GET stream of every session.
    pub fn emit(&self, message: &Value) {
        self.emit_to_each(|_| message.clone());
    }

    /// Sends an individual message to every session on its GET stream.
    pub fn emit_to_each(&self, message: impl Fn(&Session) -> Value) {
        self.replica.sessions.emit(message);
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.life.lock().over.cancel();
    }
}

async fn accept(listener: TcpListener, replica: Arc<Replica>, life: Life) {
    while let Ok((stream, _)) = listener.accept().await {
        _ = stream.set_nodelay(true);
        let serving = connection(stream, Arc::clone(&replica), life.clone());
        life.tasks.spawn(serving);
    }
}

async fn connection(stream: TcpStream, replica: Arc<Replica>, life: Life) {
    let rest = Arc::new(Rest::default());
    let resting = Arc::clone(&rest);
    let (serving, dying) = (Arc::clone(&replica), life.clone());
    let service = service_fn(move |request| {
        let busy = resting.busy();
        serve::serve(request, Arc::clone(&serving), dying.clone(), busy)
    });
    let mut serving = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let idle = async {
        rest.is_over(&replica.resting).await;
        End::Idle
    };
    let dead = async {
        life.over.cancelled().await;
        End::Dead
    };
    let end = tokio::select! {
        // Tests break connections on purpose.
        _ = &mut serving => return,
        end = idle => end,
        end = dead => end,
    };
    if end == End::Idle {
        Pin::new(&mut serving).graceful_shutdown();
        tokio::select! {
            _ = &mut serving => return,
            () = life.over.cancelled() => {}
        }
    }
    let stream = serving.into_parts().io.into_inner();
    _ = stream.set_zero_linger();
}

// === impl Settings ===

impl Default for Settings {
    fn default() -> Self {
        let unknown = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32001, "message": "Session not found"}});
        Self {
            version: None,
            all_tools: false,
            chunked: false,
            capabilities: json!({"tools": {}, "resources": {"subscribe": true}, "logging": {}}),
            lost: Canned::json(404, &unknown.to_string()),
            either_is_sse: false,
            escapes_slashes: false,
        }
    }
}
