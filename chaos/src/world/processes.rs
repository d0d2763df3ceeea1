//! A server that is a command: its processes, what they wrote down, and how they are struck.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::ensure;
use bowline_testbed::stdio::counted::{self, CLOSED, LOGS, NOTES, Note, Noted, YOUNG};
use tempfile::TempDir;
use tokio::process::Command;

use crate::gateway::LIST_TIMEOUT;
const PROGRAM: &str = "stdio-counting";

/// A server that is a command.
#[derive(Debug)]
pub(crate) struct Processes {
    program: PathBuf,
    /// Holds what they write down, and what closes the server.
    directory: TempDir,
    /// Whether they log to their stdout.
    logs: bool,
}

/// What becomes of processes that are started.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Start {
    Well,
    /// They exit at once.
    Fails,
    /// They exit right after they have answered `initialize`.
    DiesYoung,
}

impl Processes {
    pub(super) fn new(logs: bool) -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        ensure!(program.exists(), "{} does not exist", program.display());
        let directory = tempfile::tempdir()?;
        Ok(Self {
            program,
            directory,
            logs,
        })
    }

    /// The server in the gateway's configuration, with this budget in seconds.
    pub(crate) fn config(&self, budget: u64) -> String {
        let logs = match self.logs {
            true => format!("{LOGS} = \"1\"\n"),
            false => String::new(),
        };
        format!(
            "[servers.p]\ncommand = [{:?}]\nrecovery_budget = \"{budget}s\"\n\
             list_timeout = \"{LIST_TIMEOUT}\"\n\
             [servers.p.env]\n{NOTES} = {:?}\n{CLOSED} = {:?}\n{logs}",
            self.program,
            self.notes(),
            self.closed(),
        )
    }

    /// What happened in them.
    pub(crate) fn notes_so_far(&self) -> Vec<Note> {
        counted::read(&self.notes()).unwrap_or_default()
    }

    /// Those that are there now.
    pub(crate) fn alive(&self) -> Vec<u32> {
        let notes = self.notes_so_far();
        let opened = notes
            .iter()
            .filter(|note| matches!(note.what, Noted::Opened { .. }));
        let pids: BTreeSet<_> = opened.map(|note| note.pid).collect();
        // Somebody else's may have the number of one that has gone.
        let notes = self.notes();
        let is_alive = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            String::from_utf8_lossy(&environment).contains(&*notes.to_string_lossy())
        };
        pids.into_iter().filter(is_alive).collect()
    }

    /// Sends a signal to these. One that has gone meanwhile does not mind.
    pub(crate) async fn signal(&self, signal: &str, pids: &[u32]) -> anyhow::Result<()> {
        if !pids.is_empty() {
            let pids = pids.iter().map(u32::to_string);
            let mut command = Command::new("kill");
            command.arg(format!("-{signal}")).args(pids);
            command.stderr(std::process::Stdio::null()).status().await?;
        }
        Ok(())
    }

    /// What becomes of those that are started from now on.
    pub(crate) fn start(&self, start: Start) -> std::io::Result<()> {
        match start {
            Start::Fails => std::fs::write(self.closed(), ""),
            // In one step, as one that is empty says something else.
            Start::DiesYoung => {
                let written = self.closed().with_extension("new");
                std::fs::write(&written, YOUNG)?;
                std::fs::rename(written, self.closed())
            }
            // Another strike may have opened it already.
            Start::Well => match std::fs::remove_file(self.closed()) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    fn notes(&self) -> PathBuf {
        self.directory.path().join("notes")
    }

    fn closed(&self) -> PathBuf {
        self.directory.path().join("closed")
    }
}

/// How long after then something was written down; the clocks of processes are the machine's.
pub(crate) fn since(origin: SystemTime, note: &Note) -> std::time::Duration {
    note.at.duration_since(origin).unwrap_or_default()
}
