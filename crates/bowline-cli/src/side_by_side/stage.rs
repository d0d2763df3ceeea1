//! What runs: on each side two replicas, a load balancer with sticky cookies in front of them, then Bowline or
//! the plain proxy, then a client. All but what is in the middle is the same on both sides.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::balancer;
use super::client::{Client, Counted};
use super::processes::{Process, Starter};

/// Both sides.
pub(super) struct Stage {
    pub(super) bowline: Side,
    pub(super) plain: Side,
    starter: Starter,
    // Removed when the demo ends.
    _directory: TempDir,
    _stop: DropGuard,
}

/// One way from a client to its server.
pub(super) struct Side {
    middle: Middle,
    directory: PathBuf,
    replicas: [Option<Process>; 2],
    replica_addresses: [SocketAddr; 2],
    gateway: Option<Process>,
    pub(super) client: Client,
    /// The replica that answered last.
    used: usize,
}

/// What is between the client and the load balancer.
#[derive(Clone, Debug)]
enum Middle {
    Bowline { config: PathBuf },
    Proxy { to: SocketAddr },
}

const ANY_PORT: &str = "127.0.0.1:0";

// === impl Stage ===

impl Stage {
    /// Starts everything.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let starter = Starter::new()?;
        let directory = tempfile::tempdir().context("cannot make a directory")?;
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
        let mut sides = Vec::new();
        for name in ["bowline", "plain"] {
            let directory = directory.path().join(name);
            std::fs::create_dir(&directory)?;
            sides.push(Side::start(name, directory, &starter, &tracker, &stop).await?);
        }
        let plain = sides.pop().context("there are two")?;
        let bowline = sides.pop().context("there are two")?;
        Ok(Self {
            bowline,
            plain,
            starter,
            _directory: directory,
            _stop: stop.drop_guard(),
        })
    }

    /// Both clients count, at the same time.
    pub(super) async fn count(&mut self) -> [anyhow::Result<Counted>; 2] {
        let (bowline, plain) = tokio::join!(self.bowline.count(), self.plain.count());
        [bowline, plain]
    }

    /// Kills, on each side, the replica that has the client's session.
    pub(super) async fn kill_replicas(&mut self) -> anyhow::Result<()> {
        self.bowline.kill_replica().await?;
        self.plain.kill_replica().await
    }

    /// Starts the killed replicas again; they remember nothing.
    pub(super) async fn revive_replicas(&mut self) -> anyhow::Result<()> {
        self.bowline.revive_replicas(&self.starter).await?;
        self.plain.revive_replicas(&self.starter).await
    }

    /// Kills the gateway and the proxy, and starts both again.
    pub(super) async fn restart_gateways(&mut self) -> anyhow::Result<()> {
        self.bowline.restart_gateway(&self.starter).await?;
        self.plain.restart_gateway(&self.starter).await
    }

    /// From now on no client keeps cookies.
    pub(super) fn drop_cookies(&mut self) {
        self.bowline.client.drop_cookies();
        self.plain.client.drop_cookies();
    }

    /// Ends all processes.
    pub(super) async fn stop(self) {
        self.starter.stop().await;
    }
}

// === impl Side ===

impl Side {
    async fn start(
        name: &'static str,
        directory: PathBuf,
        starter: &Starter,
        tracker: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let one = start_replica(starter, 0, &directory, ANY_PORT).await?;
        let two = start_replica(starter, 1, &directory, ANY_PORT).await?;
        let replica_addresses = [one.address(), two.address()];
        let to = balancer::start(replica_addresses, tracker, stop).await?;
        let middle = match name {
            "bowline" => Middle::Bowline {
                config: configure(&directory, to)?,
            },
            _ => Middle::Proxy { to },
        };
        let gateway = middle.start(starter, ANY_PORT).await?;
        let client = Client::new(name, gateway.address(), middle.path());
        Ok(Self {
            middle,
            directory,
            replicas: [Some(one), Some(two)],
            replica_addresses,
            gateway: Some(gateway),
            client,
            used: 0,
        })
    }

    async fn count(&mut self) -> anyhow::Result<Counted> {
        let counted = self.client.count().await?;
        self.used = counted.replica;
        Ok(counted)
    }

    async fn kill_replica(&mut self) -> anyhow::Result<()> {
        if let Some(replica) = self.replicas[self.used].take() {
            replica.kill().await?;
        }
        Ok(())
    }

    async fn revive_replicas(&mut self, starter: &Starter) -> anyhow::Result<()> {
        for (number, replica) in self.replicas.iter_mut().enumerate() {
            if replica.is_none() {
                let listen = self.replica_addresses[number].to_string();
                *replica = Some(start_replica(starter, number, &self.directory, &listen).await?);
            }
        }
        Ok(())
    }

    async fn restart_gateway(&mut self, starter: &Starter) -> anyhow::Result<()> {
        if let Some(gateway) = self.gateway.take() {
            let listen = gateway.kill().await?.to_string();
            self.gateway = Some(self.middle.start(starter, &listen).await?);
        }
        Ok(())
    }
}

// === impl Middle ===

impl Middle {
    async fn start(&self, starter: &Starter, listen: &str) -> anyhow::Result<Process> {
        match self {
            Self::Bowline { config } => {
                let config = text(config)?;
                let serve = [
                    "serve", "--config", config, "--listen", listen, "--admin", "off",
                ];
                starter.start(&serve).await
            }
            Self::Proxy { to } => {
                let to = to.to_string();
                let proxy = ["demo-part", "--listen", listen, "proxy", &to];
                starter.start(&proxy).await
            }
        }
    }

    /// Where the client finds the server.
    fn path(&self) -> &'static str {
        match self {
            Self::Bowline { .. } => "/mcp/counter",
            Self::Proxy { .. } => "/mcp",
        }
    }
}

async fn start_replica(
    starter: &Starter,
    number: usize,
    directory: &Path,
    listen: &str,
) -> anyhow::Result<Process> {
    let (name, directory) = (number.to_string(), text(directory)?);
    starter
        .start(&["demo-part", "--listen", listen, "replica", &name, directory])
        .await
}

/// Writes what an operator would write: one server, and sessions in a file.
fn configure(directory: &Path, balancer: SocketAddr) -> anyhow::Result<PathBuf> {
    let (config, sessions) = (directory.join("bowline.toml"), directory.join("sessions"));
    let sessions = text(&sessions)?;
    let store = format!("[store]\nkind = \"file\"\npath = {sessions:?}\n");
    let server = format!("[servers.counter]\nurl = \"http://{balancer}/mcp\"\n");
    std::fs::write(&config, store + &server)?;
    Ok(config)
}

fn text(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
