//! One gateway, which can be killed and comes back where it was.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use parking_lot::Mutex as SyncMutex;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::launch::Launch;
use crate::server::{Server, Target};

/// How often a gateway is started again whose port somebody else holds for a moment.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// How long it takes until clients do not ask a gateway that is stopped.
const UNTIL_NOTICED: Duration = Duration::from_secs(1);

/// One gateway. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Mutex<Child>,
    launch: Launch,
    address: SocketAddr,
    log: PathBuf,
    life: AtomicU64,
    /// Since when it is stopped, if it is.
    stopped: SyncMutex<Option<Instant>>,
    /// How often it was stopped or cut off.
    trials: AtomicU64,
}

/// Which life of a gateway's it is; it is between two of them from the kill to the restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life(u64);

impl Gateway {
    /// Starts it on a free port.
    pub(super) async fn start(launch: Launch, log: PathBuf) -> anyhow::Result<Self> {
        File::create(&log)?;
        let (child, url) = launch.spawn("127.0.0.1:0", &log).await?;
        let host = url
            .strip_prefix("http://")
            .and_then(|rest| rest.split('/').next())
            .with_context(|| format!("{url} has no host"))?;
        let address: SocketAddr = host.parse()?;
        Ok(Self {
            child: Mutex::new(child),
            launch,
            address,
            log,
            life: AtomicU64::new(0),
            stopped: SyncMutex::default(),
            trials: AtomicU64::new(0),
        })
    }

    /// Where it listens.
    pub(crate) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where clients of streamable HTTP find a server, or all.
    pub(crate) fn url(&self, target: Target) -> String {
        format!("{}{}", self.origin(), target.path())
    }

    /// Where clients of HTTP+SSE find a server.
    pub(crate) fn sse_url(&self, server: Server) -> String {
        format!("{}/sse/{}", self.origin(), server.name())
    }

    pub(super) fn log(&self) -> &Path {
        &self.log
    }

    /// Its present life.
    pub(crate) fn life(&self) -> Life {
        Life(self.life.load(Ordering::SeqCst))
    }

    /// Whether it was killed after then, or was dead at that time.
    pub(crate) fn died_since(&self, life: Life) -> bool {
        life.0 % 2 == 1 || self.life() != life
    }

    /// Kills it with SIGKILL, and starts it again after this time.
    pub(crate) async fn kill_for(&self, time: Duration) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        self.ensure_runs(&mut child)?;
        // Before the kill, as its clients notice that before this task does.
        self.life.fetch_add(1, Ordering::SeqCst);
        child.kill().await?;
        sleep(time).await;
        let (listen, mut tries) = (self.address.to_string(), 0);
        *child = loop {
            match self.launch.spawn(&listen, &self.log).await {
                Ok((again, _)) => break again,
                Err(error) if tries == TRIES => return Err(error),
                Err(_) => tries += 1,
            }
            sleep(BETWEEN_TRIES).await;
        };
        self.life.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.lock().is_some()
    }

    /// Whether it has been stopped for so long that a load balancer does not ask it any more. What it was asked
    /// before waits, and is there when it goes on.
    pub(crate) fn is_left_out(&self) -> bool {
        let stopped = *self.stopped.lock();
        stopped.is_some_and(|since| since.elapsed() > UNTIL_NOTICED)
    }

    /// How often it was stopped or cut off.
    pub(crate) fn trials(&self) -> u64 {
        self.trials.load(Ordering::SeqCst)
    }

    /// A number that changes whenever it is killed, started, stopped or cut off.
    pub(super) fn unrest(&self) -> u64 {
        self.trials() + self.life.load(Ordering::SeqCst)
    }

    /// It is stopped or cut off once more.
    pub(crate) fn begin_trial(&self) {
        self.trials.fetch_add(1, Ordering::SeqCst);
    }

    /// Stops it with SIGSTOP. It has stopped when this returns.
    pub(crate) async fn pause(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        self.ensure_runs(&mut child)?;
        *self.stopped.lock() = Some(Instant::now());
        let id = signal(&child, "STOP").await?;
        while !is_stopped(id)? {
            sleep(BETWEEN_TRIES).await;
        }
        Ok(())
    }

    /// Lets it go on.
    pub(crate) async fn resume(&self) -> anyhow::Result<()> {
        let child = self.child.lock().await;
        signal(&child, "CONT").await?;
        *self.stopped.lock() = None;
        Ok(())
    }

    /// Has it read its configuration again. One that is dead does when it comes back.
    pub(super) async fn reload(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        self.ensure_runs(&mut child)?;
        signal(&child, "HUP").await?;
        Ok(())
    }

    /// Ends it. One that has ended by itself is an error.
    pub(super) async fn stop(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        self.ensure_runs(&mut child)?;
        Ok(child.kill().await?)
    }

    fn ensure_runs(&self, child: &mut Child) -> anyhow::Result<()> {
        match child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("a gateway ended: {status}, see {}", self.log.display()),
        }
    }
}

/// Sends a signal to a gateway; its process id.
async fn signal(child: &Child, signal: &str) -> anyhow::Result<u32> {
    let id = child.id().context("a gateway has ended")?;
    let mut command = Command::new("kill");
    command.arg(format!("-{signal}")).arg(id.to_string());
    let told = command.status().await?;
    ensure!(told.success(), "a gateway cannot be sent SIG{signal}");
    Ok(id)
}

fn is_stopped(id: u32) -> anyhow::Result<bool> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"))?;
    let state = stat.rsplit(") ").next().unwrap_or_default();
    Ok(state.starts_with('T'))
}
