//! The gateways under test: the real command, once with a file store on a small disk, or several times with
//! a Redis between them.

mod disk;
mod launch;
mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bowline_testbed::redis::Redis;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use self::disk::Disk;
use self::launch::Launch;
pub(crate) use self::process::{Gateway, Life};
use crate::Arguments;
use crate::history::Recorder;
use crate::trouble::Trouble;
use crate::world::World;

/// How long an endpoint that is no longer configured keeps its sessions.
const DRAIN: &str = "1s";

/// All gateways, which share their sessions if they are several. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateways {
    all: Vec<Gateway>,
    /// Holds the configuration.
    directory: TempDir,
    store: Store,
    budget: u64,
    /// The configuration of the server that is a command, if there is one.
    command: String,
}

/// Where sessions are.
#[derive(Debug)]
enum Store {
    Memory,
    /// In a file on a disk that can be filled up.
    File(Disk),
    /// In a Redis that several share, sealed with this key.
    Redis(Box<Redis>, String),
}

impl Gateways {
    /// Starts them before these replicas.
    pub(crate) async fn start(arguments: &Arguments, world: &World) -> anyhow::Result<Self> {
        let command = match &arguments.gateway {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("bowline"),
        };
        let mut gateways = Self {
            all: Vec::new(),
            directory: tempfile::tempdir()?,
            store: Store::start(arguments, &command).await?,
            budget: arguments.budget,
            command: match &world.processes {
                Some(processes) => processes.config(arguments.budget),
                None => String::new(),
            },
        };
        gateways.configure(&world.urls(None))?;
        let mut launch = Launch::new(command, gateways.config());
        if let Store::Redis(_, seal_key) = &gateways.store {
            launch.set("BOWLINE_SEAL_KEYS", seal_key.clone());
        }
        if arguments.tries(Trouble::Tls) {
            let authority = world.authority();
            launch.set("SSL_CERT_FILE", authority.display().to_string());
        }
        if let Some(bug) = &arguments.planted {
            launch.set("BOWLINE_PLANTED", bug.clone());
        }
        for number in 0..arguments.gateways {
            let name = match arguments.gateways {
                1 => format!("chaos-{}.log", arguments.seed),
                _ => format!("chaos-{}-g{number}.log", arguments.seed),
            };
            let log = std::env::temp_dir().join(name);
            let gateway = Gateway::start(launch.clone(), log).await?;
            gateways.all.push(gateway);
        }
        Ok(gateways)
    }

    pub(crate) fn all(&self) -> &[Gateway] {
        &self.all
    }

    pub(crate) fn logs(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(Gateway::log)
    }

    /// Has them read a configuration with these endpoints.
    pub(crate) async fn reload(&self, endpoints: &[String]) -> anyhow::Result<()> {
        self.configure(endpoints)?;
        for gateway in &self.all {
            gateway.reload().await?;
        }
        Ok(())
    }

    /// Lets the shared Redis hang for so long.
    pub(crate) async fn pause_redis(
        &self,
        time: Duration,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        let Store::Redis(redis, _) = &self.store else {
            return Ok(());
        };
        recorder.fault("redis", "pause redis", format!("hangs for {time:?}"), time);
        redis.pause().await?;
        sleep(time).await;
        redis.resume().await
    }

    /// Lets the disk of the file store be full for so long.
    pub(crate) async fn fill_disk(
        &self,
        time: Duration,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        let Store::File(disk) = &self.store else {
            return Ok(());
        };
        recorder.fault("disk", "disk full", format!("full for {time:?}"), time);
        disk.fill()?;
        sleep(time).await;
        disk.free()
    }

    /// Ends them. One that has ended by itself is an error.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        for gateway in &self.all {
            gateway.stop().await?;
        }
        Ok(())
    }

    /// Writes the configuration, in one step for whoever reads it meanwhile.
    fn configure(&self, endpoints: &[String]) -> anyhow::Result<()> {
        let written = self.directory.path().join("new.toml");
        let text = format!(
            "[store]\n{}\n[servers.s]\nendpoints = {endpoints:?}\n\
             recovery_budget = \"{}s\"\ndrain_timeout = \"{DRAIN}\"\n{}",
            self.store.config(),
            self.budget,
            self.command,
        );
        std::fs::write(&written, text)?;
        Ok(std::fs::rename(written, self.config())?)
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("bowline.toml")
    }
}

impl Store {
    async fn start(arguments: &Arguments, command: &Path) -> anyhow::Result<Self> {
        if arguments.gateways > 1 {
            let made = Command::new(command).arg("keygen").output().await;
            let made = made.with_context(|| format!("{}: cannot be started", command.display()))?;
            ensure!(made.status.success(), "no seal key was made: {made:?}");
            let seal_key = String::from_utf8(made.stdout)?.trim().to_owned();
            let redis = Box::new(Redis::start().await?);
            return Ok(Self::Redis(redis, seal_key));
        }
        if !arguments.tries(Trouble::DiskFull) {
            return Ok(Self::Memory);
        }
        match Disk::mount(arguments.seconds) {
            Ok(disk) => Ok(Self::File(disk)),
            Err(error) => {
                let what = format!("chaos: no small disk ({error:#}): a full one is NOT tried");
                bowline_testbed::skip(&what);
                Ok(Self::Memory)
            }
        }
    }

    fn config(&self) -> String {
        match self {
            Self::Memory => "kind = \"memory\"".to_owned(),
            Self::File(disk) => format!("kind = \"file\"\npath = {:?}", disk.store()),
            Self::Redis(redis, _) => format!("kind = \"redis\"\nurl = {:?}", redis.url()),
        }
    }
}
