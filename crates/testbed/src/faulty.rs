//! A proxy that injects faults at exact places.
//!
//! It relays plain TCP to one upstream and understands just enough HTTP/1.1 to know where a request and
//! a response end. [`Rule`]s decide what happens to a request; without any, everything passes unchanged.
//! Every rule counts its uses, so that a test can wait until a fault has happened instead of guessing.

mod framing;
mod port;
mod relay;
mod rules;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

pub(crate) use self::port::Port;
pub use self::rules::{Rule, When};
use self::rules::{Rules, Times};

/// What happens to a request.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It is forwarded, and the response is returned.
    Pass,
    /// The connection is reset; the upstream gets nothing.
    ResetBefore,
    /// The upstream gets all of it, then the connection is reset; no part of the response is returned.
    ResetAfter,
    /// The same, but the connection ends (FIN) before it is reset, as HAProxy's `option nolinger` has it in
    /// `mode tcp`.
    EndThenReset,
    /// This many bytes of the response's body are returned, then the connection ends.
    ///
    /// Chunks' sizes are not counted. The end is a FIN, because a reset may swallow bytes that were
    /// sent before it; to an HTTP client it is as unexpected. An answer that is shorter passes.
    Cut(usize),
    /// It is forwarded later.
    Delay(Duration),
    /// It is forwarded at that moment, as if the upstream had hung until then.
    Hang(Instant),
    /// It is forwarded at once; the response is returned later.
    DelayAnswer(Duration),
    /// The proxy gives this response; the upstream gets nothing.
    Answer(Canned),
}

/// A response by the proxy itself.
#[derive(Debug, Clone)]
pub struct Canned {
    /// The status.
    pub status: u16,
    /// Headers besides `content-length`.
    pub headers: Vec<(String, String)>,
    /// The body, in which `$id` is replaced by the request's JSON-RPC id.
    pub body: String,
}

/// The proxy. Dropping it breaks open connections.
#[derive(Debug)]
pub struct Faulty {
    port: Port,
    shared: Arc<Shared>,
    listening: Mutex<Option<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    rules: Arc<Rules>,
    /// Cancelled to break the current connections.
    broken: Mutex<CancellationToken>,
    connections: TaskTracker,
}

// === impl Faulty ===

impl Faulty {
    /// A proxy in front of this address, on a free loopback port.
    ///
    /// # Errors
    ///
    /// When there is no port.
    pub async fn start(upstream: SocketAddr) -> io::Result<Self> {
        let proxy = Self {
            port: Port::reserve()?,
            shared: Arc::new(Shared {
                upstream,
                rules: Arc::default(),
                broken: Mutex::default(),
                connections: TaskTracker::new(),
            }),
            listening: Mutex::default(),
        };
        proxy.accept()?;
        Ok(proxy)
    }

    /// Where it listens, even while it refuses connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// The MCP endpoint behind it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address())
    }

    /// Applies the fault to the next `count` matching requests.
    ///
    /// The oldest matching rule applies.
    pub fn next(&self, count: usize, when: When, fault: Fault) -> Rule {
        Rules::add(&self.shared.rules, Times::Left(count), when, fault)
    }

    /// Applies the fault to all matching requests, until the rule is removed.
    pub fn always(&self, when: When, fault: Fault) -> Rule {
        Rules::add(&self.shared.rules, Times::Always, when, fault)
    }

    /// Removes all rules: everything passes.
    pub fn pass(&self) {
        self.shared.rules.clear();
    }

    /// How many requests arrived, including those that met a fault.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.rules.requests()
    }

    /// Closes the listener: connections are refused from now on. Open connections stay open.
    pub async fn refuse(&self) {
        let listening = self.listening.lock().take();
        if let Some(listening) = listening {
            listening.abort();
            // Only then is the listener closed.
            _ = listening.await;
        }
    }

    /// Listens again after [`Faulty::refuse`], on the same port.
    ///
    /// # Errors
    ///
    /// When the port is not available.
    pub fn accept(&self) -> io::Result<()> {
        let mut listening = self.listening.lock();
        if listening.is_none() {
            let accepting = accept(self.port.listen()?, Arc::clone(&self.shared));
            let task = self.shared.connections.spawn(accepting);
            *listening = Some(AbortOnDropHandle::new(task));
        }
        Ok(())
    }

    /// Resets every open connection, even in the middle of a message.
    pub fn break_connections(&self) {
        let broken = std::mem::take(&mut *self.shared.broken.lock());
        broken.cancel();
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.break_connections();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let broken = shared.broken.lock().clone();
        let relay = relay::relay(stream, Arc::clone(&shared), broken);
        shared.connections.spawn(relay);
    }
}

// === impl Canned ===

impl Canned {
    /// A status with a plain body.
    #[must_use]
    pub fn plain(status: u16, body: &str) -> Self {
        Self::new(status, "text/plain", body)
    }

    /// A status with a JSON body, in which `$id` stands for the request's id.
    #[must_use]
    pub fn json(status: u16, body: &str) -> Self {
        Self::new(status, "application/json", body)
    }

    /// A status with an HTML page.
    #[must_use]
    pub fn html(status: u16, body: &str) -> Self {
        Self::new(status, "text/html", body)
    }

    fn new(status: u16, content_type: &str, body: &str) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.to_owned(),
        }
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}
