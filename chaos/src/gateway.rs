//! The gateway under test: the real command.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::Arguments;

/// A running gateway. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Gateway {
    child: Child,
    url: String,
    log: PathBuf,
}

impl Gateway {
    /// Starts it before these replicas.
    pub(crate) async fn start(arguments: &Arguments, replicas: &str) -> anyhow::Result<Self> {
        let beside = || Ok::<_, std::io::Error>(std::env::current_exe()?.with_file_name("bowline"));
        let path = match &arguments.gateway {
            Some(path) => path.clone(),
            None => beside()?,
        };
        let log = std::env::temp_dir().join(format!("chaos-{}.log", arguments.seed));
        let mut command = Command::new(&path);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--server", &format!("s={replicas}")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            .kill_on_drop(true);
        if arguments.replay_everything {
            command.env("BOWLINE_PLANTED", "replay_everything");
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("{}: cannot be started", path.display()))?;
        let output = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            let url = line
                .split_whitespace()
                .find(|word| word.ends_with("/mcp/s"));
            if let Some(url) = url {
                return Ok(Self {
                    url: url.to_owned(),
                    child,
                    log,
                });
            }
        }
        bail!("the gateway did not start: see {}", log.display())
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    /// Ends it. One that has ended by itself is an error.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the gateway ended: {status}, see {}", self.log.display());
        }
        self.child.kill().await?;
        Ok(())
    }
}
