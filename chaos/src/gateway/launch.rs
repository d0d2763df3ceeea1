//! How a gateway is started, the first time and after every kill.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// The command and what it is given, but for its address.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
}

impl Launch {
    pub(super) fn new(program: PathBuf) -> Self {
        Self {
            program,
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// With this configuration.
    pub(super) fn configured(&mut self, config: PathBuf) {
        self.arguments.extend(["--config".into(), config.into()]);
    }

    /// With one more variable in its environment.
    pub(super) fn set(&mut self, variable: &'static str, value: String) {
        self.environment.push((variable, value));
    }

    /// Starts it there, and waits until it says what its server's URL is.
    pub(super) async fn spawn(&self, listen: &str, log: &Path) -> anyhow::Result<(Child, String)> {
        let mut child = Command::new(&self.program)
            .args(["serve", "--listen", listen, "--admin", "127.0.0.1:0"])
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(OpenOptions::new().append(true).open(log)?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{}: cannot be started", self.program.display()))?;
        let output = child.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        while let Some(line) = lines.next_line().await? {
            let mut words = line.split_whitespace();
            if let Some(url) = words.find(|word| word.ends_with("/mcp/s")) {
                return Ok((child, url.to_owned()));
            }
        }
        let said = std::fs::read_to_string(log)?;
        let said = said.lines().last().unwrap_or_default();
        bail!("the gateway did not start: {said} (see {})", log.display())
    }
}
