//! The gateways under test: the real command, once or several times with a Redis between them.

mod launch;
mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bowline_testbed::redis::Redis;
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use self::launch::Launch;
pub(crate) use self::process::{Gateway, Life};
use crate::Arguments;
use crate::history::Recorder;

/// All gateways, which share their sessions if they are several. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateways {
    all: Vec<Gateway>,
    shared: Option<Shared>,
}

/// What several gateways share.
#[derive(Debug)]
struct Shared {
    redis: Redis,
    /// Holds the configuration.
    directory: TempDir,
    seal_key: String,
}

impl Gateways {
    /// Starts them before these replicas.
    pub(crate) async fn start(arguments: &Arguments, replicas: &str) -> anyhow::Result<Self> {
        let command = match &arguments.gateway {
            Some(path) => path.clone(),
            None => std::env::current_exe()?.with_file_name("bowline"),
        };
        let shared = match arguments.gateways {
            1 => None,
            _ => Some(Shared::start(&command).await?),
        };
        let mut launch = Launch::new(command, replicas);
        if let Some(shared) = &shared {
            launch.share(shared.config(), &shared.seal_key);
        }
        if let Some(bug) = &arguments.planted {
            launch.plant(bug);
        }
        let mut all = Vec::new();
        for number in 0..arguments.gateways {
            let name = match &shared {
                None => format!("chaos-{}.log", arguments.seed),
                Some(_) => format!("chaos-{}-g{number}.log", arguments.seed),
            };
            let log = std::env::temp_dir().join(name);
            all.push(Gateway::start(launch.clone(), log).await?);
        }
        Ok(Self { all, shared })
    }

    pub(crate) fn all(&self) -> &[Gateway] {
        &self.all
    }

    pub(crate) fn logs(&self) -> impl Iterator<Item = &Path> {
        self.all.iter().map(Gateway::log)
    }

    /// Lets the shared Redis hang for so long.
    pub(crate) async fn pause_redis(
        &self,
        time: Duration,
        recorder: &Recorder,
    ) -> anyhow::Result<()> {
        let Some(Shared { redis, .. }) = &self.shared else {
            return Ok(());
        };
        recorder.fault("redis", "pause redis", format!("hangs for {time:?}"));
        redis.pause().await?;
        sleep(time).await;
        redis.resume().await
    }

    /// Ends them. One that has ended by itself is an error.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        for gateway in &self.all {
            gateway.stop().await?;
        }
        Ok(())
    }
}

impl Shared {
    async fn start(command: &Path) -> anyhow::Result<Self> {
        let redis = Redis::start().await?;
        let directory = tempfile::tempdir()?;
        let made = Command::new(command).arg("keygen").output().await;
        let made = made.with_context(|| format!("{}: cannot be started", command.display()))?;
        ensure!(made.status.success(), "no seal key was made: {made:?}");
        let shared = Self {
            seal_key: String::from_utf8(made.stdout)?.trim().to_owned(),
            redis,
            directory,
        };
        let store = format!(
            "[store]\nkind = \"redis\"\nurl = \"{}\"\n",
            shared.redis.url()
        );
        std::fs::write(shared.config(), store)?;
        Ok(shared)
    }

    fn config(&self) -> PathBuf {
        self.directory.path().join("bowline.toml")
    }
}
