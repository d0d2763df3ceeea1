//! One gateway, which can be killed and comes back where it was.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::launch::Launch;

/// How often a gateway is started again whose port somebody else holds for a moment.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// One gateway. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Mutex<Child>,
    launch: Launch,
    address: SocketAddr,
    url: String,
    log: PathBuf,
    life: AtomicU64,
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
            url,
            log,
            life: AtomicU64::new(0),
        })
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
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

    /// Has it read its configuration again. One that is dead does when it comes back.
    pub(super) async fn reload(&self) -> anyhow::Result<()> {
        let mut child = self.child.lock().await;
        self.ensure_runs(&mut child)?;
        let id = child.id().context("a gateway has ended")?.to_string();
        let told = Command::new("kill").args(["-HUP", &id]).status().await?;
        ensure!(told.success(), "a gateway cannot be told to reload");
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
