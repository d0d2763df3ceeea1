//! A real load balancer: HAProxy, which pins clients to replicas by a cookie that it inserts, or relays
//! bytes.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::process::{Child, Command};

/// The cookie that names a replica.
pub const COOKIE: &str = "REPLICA";

/// How the balancer handles a request whose cookie names a dead replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Affinity {
    /// It notices within about fifty milliseconds and uses another replica, with a new cookie.
    Moves,
    /// It follows the cookie and answers 503.
    Insists,
}

/// A running HAProxy. Killed when dropped.
#[derive(Debug)]
pub struct Haproxy {
    address: SocketAddr,
    url: String,
    _port: TcpSocket,
    _child: Child,
    _directory: tempfile::TempDir,
}

impl Haproxy {
    /// Balances over `replicas` in turn, except for requests with the cookie.
    ///
    /// Every connection is closed after one response, so that only the cookie can pin.
    ///
    /// # Errors
    ///
    /// When HAProxy is not installed (`scripts/setup` installs it) or does not come up.
    pub async fn sticky(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        Self::sticky_with(replicas, Affinity::Insists).await
    }

    /// The same with another behaviour when a replica dies.
    ///
    /// # Errors
    ///
    /// As [`Haproxy::sticky`].
    pub async fn sticky_with(replicas: &[SocketAddr], affinity: Affinity) -> anyhow::Result<Self> {
        Self::configured(|address| sticky(address, replicas, affinity)).await
    }

    /// Balances over `replicas` in turn, whoever asks.
    ///
    /// # Errors
    ///
    /// As [`Haproxy::sticky`].
    pub async fn in_turn(replicas: &[SocketAddr]) -> anyhow::Result<Self> {
        let without_cookie = |address| {
            let text = sticky(address, replicas, Affinity::Insists);
            let lines = text.lines().filter(|line| !line.starts_with("  cookie "));
            let lines = lines.map(|line| line.split(" cookie ").next().unwrap_or(line));
            lines.fold(String::new(), |text, line| text + line + "\n")
        };
        Self::configured(without_cookie).await
    }

    /// Relays bytes to one server, without HTTP. When the server resets a connection, its client first
    /// sees an orderly end and then a reset (`option nolinger`).
    ///
    /// # Errors
    ///
    /// As [`Haproxy::sticky`].
    pub async fn passing(server: SocketAddr) -> anyhow::Result<Self> {
        Self::configured(|address| passing(address, server)).await
    }

    async fn configured(text: impl Fn(SocketAddr) -> String) -> anyhow::Result<Self> {
        // Another process may take the port before HAProxy does, so a start may need another attempt.
        let mut tried = Self::start(&text).await;
        for _ in 0..4 {
            if tried.is_ok() {
                break;
            }
            tried = Self::start(&text).await;
        }
        tried
    }

    async fn start(text: impl Fn(SocketAddr) -> String) -> anyhow::Result<Self> {
        let (port, address) = reserve()?;
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("haproxy.cfg");
        std::fs::write(&path, text(address))?;
        let mut child = Command::new("haproxy")
            .arg("-db")
            .arg("-f")
            .arg(&path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("haproxy is not installed: run scripts/setup")?;
        until_it_listens(address, &mut child).await?;
        Ok(Self {
            address,
            url: format!("http://{address}/mcp"),
            _port: port,
            _child: child,
            _directory: directory,
        })
    }

    /// The address at which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// A port for one HAProxy. It shares ports with whoever does so too, also with another test's HAProxy. As long as this
/// is held, nobody else is given this one.
fn reserve() -> io::Result<(TcpSocket, SocketAddr)> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

async fn until_it_listens(address: SocketAddr, child: &mut Child) -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "asks whether the balancer is up")]
    while TcpStream::connect(address).await.is_err() {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("haproxy ended: {status}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

fn passing(address: SocketAddr, server: SocketAddr) -> String {
    format!(
        "defaults
  mode tcp
  option nolinger
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 0
listen passing
  bind {address}
  server only {server}
"
    )
}

fn sticky(address: SocketAddr, replicas: &[SocketAddr], affinity: Affinity) -> String {
    let (redispatch, check) = match affinity {
        Affinity::Moves => ("option redispatch", "check inter 50ms fall 1 rise 1"),
        Affinity::Insists => ("no option redispatch", ""),
    };
    let mut text = format!(
        "defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  option http-no-delay
  option httpclose
  {redispatch}
  retries 0
frontend clients
  bind {address}
  default_backend replicas
backend replicas
  balance roundrobin
  cookie {COOKIE} insert indirect nocache
"
    );
    for (number, replica) in replicas.iter().enumerate() {
        // Writing to a String cannot fail.
        _ = writeln!(
            text,
            "  server r{number} {replica} cookie r{number} {check}"
        );
    }
    text
}
