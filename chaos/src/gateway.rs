//! The gateways under test: the real command, once with a file store on a small disk, or several times with
//! a Redis between them, and cables from one to the other.

mod disk;
mod launch;
mod links;
mod process;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bowline_testbed::cable::Way;
use bowline_testbed::redis::{Fitness, Redis};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::sleep;

use self::disk::Disk;
use self::launch::Launch;
use self::links::Links;
pub(crate) use self::process::{Gateway, Life};
use crate::Arguments;
use crate::history::Recorder;
use crate::server::Server;
use crate::trouble::Trouble;
use crate::world::World;

/// How long an endpoint that is no longer configured keeps its sessions.
const DRAIN: &str = "1s";
/// How long a list of all servers waits for one: for less time than a replica hangs.
pub(crate) const LIST_TIMEOUT: &str = "4s";

/// All gateways, which share their sessions if they are several. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateways {
    all: Vec<Gateway>,
    /// Holds the configuration.
    directory: TempDir,
    store: Store,
    /// The cables of each, if they are several.
    links: Vec<Links>,
    budget: u64,
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
            links: Vec::new(),
            budget: arguments.budget,
        };
        if let Store::Redis(redis, _) = &gateways.store {
            for _ in 0..arguments.gateways {
                gateways.links.push(Links::start(&redis.url()).await?);
            }
        }
        gateways.configure(world, None)?;
        let mut launch = Launch::new(command);
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
            let mut launch = launch.clone();
            launch.configured(gateways.config(number.into()));
            let gateway = Gateway::start(launch, log).await?;
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

    /// Has them read a configuration without this replica, or with all.
    pub(crate) async fn reload(&self, world: &World, without: Option<usize>) -> anyhow::Result<()> {
        self.configure(world, without)?;
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

    /// Makes the shared Redis fit or unfit to be written.
    pub(crate) async fn set_fitness(&self, fitness: Fitness) -> anyhow::Result<()> {
        match &self.store {
            Store::Redis(redis, _) => redis.become_fit(fitness).await,
            Store::Memory | Store::File(_) => Ok(()),
        }
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

    /// A number that changes whenever a gateway is killed, started, stopped or cut off.
    pub(crate) fn unrest(&self) -> u64 {
        self.all.iter().map(Gateway::unrest).sum()
    }

    /// How the other gateways reach this one.
    pub(crate) fn set_peers(&self, gateway: usize, way: Way) {
        if let Some(links) = self.links.get(gateway) {
            links.peers(way);
        }
    }

    /// How a gateway reaches the shared Redis.
    pub(crate) fn set_redis(&self, gateway: usize, way: Way) {
        if let Some(links) = self.links.get(gateway) {
            links.redis(way);
        }
    }

    /// Ends them. One that has ended by itself is an error.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        for gateway in &self.all {
            gateway.stop().await?;
        }
        Ok(())
    }

    /// Writes the configuration, in one step for whoever reads it meanwhile.
    fn configure(&self, world: &World, without: Option<usize>) -> anyhow::Result<()> {
        let servers = self.servers(world, without);
        for number in 0..self.links.len().max(1) {
            let written = self.directory.path().join("new.toml");
            let own = match self.links.get(number) {
                Some(links) => links.config(),
                None => format!("[store]\n{}\n", self.store.config()),
            };
            std::fs::write(&written, format!("{own}{servers}"))?;
            std::fs::rename(written, self.config(number))?;
        }
        Ok(())
    }

    fn servers(&self, world: &World, without: Option<usize>) -> String {
        let budget = self.budget;
        let server = |name: &str, endpoints: Vec<String>| {
            format!(
                "[servers.{name}]\nendpoints = {endpoints:?}\n\
                 recovery_budget = \"{budget}s\"\ndrain_timeout = \"{DRAIN}\"\n\
                 list_timeout = \"{LIST_TIMEOUT}\"\n"
            )
        };
        let mut servers = server(Server::Replicas.name(), world.urls(without));
        if world.has_streams {
            servers += &server(Server::Streams.name(), world.urls_at("/sse", without));
            servers += "transport = \"sse\"\n";
        }
        if world.has_mixed {
            servers += &server(Server::Mixed.name(), world.urls_at("/either", without));
            servers += "transport = \"auto\"\n";
        }
        if let Some(processes) = &world.processes {
            servers += &processes.config(budget);
        }
        servers
    }

    fn config(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("bowline-{number}.toml"))
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
