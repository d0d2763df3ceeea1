//! A real Redis that can be started, paused, killed, and restarted empty.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};

use crate::certificates::{self, run};

/// A running Redis that keeps nothing on the disk. Killed when dropped.
#[derive(Debug)]
pub struct Redis {
    address: SocketAddr,
    options: Vec<String>,
    tls: bool,
    child: Child,
    directory: tempfile::TempDir,
}

/// Whether a Redis can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// It can.
    Fit,
    /// It has no room for anything more, and throws nothing away.
    Full,
    /// It is the replica of a Redis that is not there.
    ReadOnly,
}

impl Redis {
    /// Starts one on a free port.
    ///
    /// # Errors
    ///
    /// When `redis-server` is not installed (`scripts/setup` installs it) or does not come up.
    pub async fn start() -> anyhow::Result<Self> {
        Self::start_with(&[]).await
    }

    /// The same with further options, such as `["--requirepass", "secret"]`.
    ///
    /// # Errors
    ///
    /// As [`Redis::start`].
    pub async fn start_with(options: &[&str]) -> anyhow::Result<Self> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self::launch(tempfile::tempdir()?, options, false).await
    }

    /// Starts one that accepts only TLS, with a certificate for 127.0.0.1 from its own authority.
    ///
    /// # Errors
    ///
    /// As [`Redis::start`], and when `openssl` is not installed.
    pub async fn start_tls() -> anyhow::Result<Self> {
        let directory = tempfile::tempdir()?;
        certificates::make(directory.path(), "redis").await?;
        Self::launch(directory, Vec::new(), true).await
    }

    async fn launch(
        directory: tempfile::TempDir,
        options: Vec<String>,
        tls: bool,
    ) -> anyhow::Result<Self> {
        // Another process may take the port before Redis does, so a start may need another attempt.
        let mut tries = 0;
        let (address, child) = loop {
            let address = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
            match spawn(address, &options, tls, directory.path()).await {
                Ok(child) => break (address, child),
                Err(error) if tries == 4 => return Err(error),
                Err(_) => tries += 1,
            }
        };
        Ok(Self {
            address,
            options,
            tls,
            child,
            directory,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        format!("{scheme}://{}", self.address)
    }

    /// The certificate of its authority, if it speaks TLS.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// Makes it hang: it accepts connections and does not answer. It stands still when this returns.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.signal("-STOP").await?;
        let id = self.child.id().context("redis-server is not running")?;
        let stat = format!("/proc/{id}/stat");
        // Where the system says so.
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") T ")) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// Ends the hang.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn resume(&self) -> anyhow::Result<()> {
        self.signal("-CONT").await
    }

    /// Makes it fit or unfit to be written.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub async fn become_fit(&self, fitness: Fitness) -> anyhow::Result<()> {
        let (maxmemory, master) = match fitness {
            Fitness::Fit => (0, "NO ONE"),
            Fitness::Full => (1, "NO ONE"),
            Fitness::ReadOnly => (0, "127.0.0.1 1"),
        };
        let commands = format!(
            "CONFIG SET maxmemory-policy noeviction\r\nCONFIG SET maxmemory {maxmemory}\r\nREPLICAOF {master}\r\n"
        );
        #[expect(clippy::disallowed_methods, reason = "this is not the gateway")]
        let mut stream = BufReader::new(TcpStream::connect(self.address).await?);
        stream.write_all(commands.as_bytes()).await?;
        for _ in 0..3 {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            anyhow::ensure!(line.starts_with("+OK"), "redis-server says {line:?}");
        }
        Ok(())
    }

    /// Kills it; from now on connections are refused.
    ///
    /// # Errors
    ///
    /// When the system refuses.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Restarts it after [`Redis::kill`], at the same address and empty.
    ///
    /// # Errors
    ///
    /// When it does not come up.
    pub async fn restart_empty(&mut self) -> anyhow::Result<()> {
        let directory = self.directory.path();
        self.child = spawn(self.address, &self.options, self.tls, directory).await?;
        Ok(())
    }

    /// Restarts it after [`Redis::kill`], at the same address and with the data of its last `SAVE`.
    ///
    /// # Errors
    ///
    /// When it does not come up.
    pub async fn restart_from_snapshot(&mut self) -> anyhow::Result<()> {
        let snapshot = self.directory.path().join("dump.rdb");
        anyhow::ensure!(snapshot.exists(), "there is no snapshot");
        self.restart_empty().await
    }

    async fn signal(&self, signal: &str) -> anyhow::Result<()> {
        let id = self.child.id().context("redis-server is not running")?;
        run(Command::new("kill").arg(signal).arg(id.to_string())).await
    }
}

async fn spawn(
    address: SocketAddr,
    options: &[String],
    tls: bool,
    directory: &Path,
) -> anyhow::Result<Child> {
    let mut command = Command::new("redis-server");
    let port = address.port().to_string();
    command
        .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(directory);
    if tls {
        command.args(["--port", "0", "--tls-auth-clients", "no", "--tls-port"]);
        command.arg(&port);
        for (option, file) in [
            ("--tls-cert-file", "redis.pem"),
            ("--tls-key-file", "redis.key"),
            ("--tls-ca-cert-file", "ca.pem"),
        ] {
            command.arg(option).arg(directory.join(file));
        }
    } else {
        command.args(["--port", &port]);
    }
    let mut child = command
        .args(options)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("redis-server is not installed: run scripts/setup")?;
    #[expect(clippy::disallowed_methods, reason = "asks whether Redis is up")]
    while TcpStream::connect(address).await.is_err() {
        if let Some(status) = child.try_wait()? {
            anyhow::bail!("redis-server ended: {status}");
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(child)
}
