//! A server that is a command: its processes, what they wrote down, and how they are struck.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::ensure;
use bowline_testbed::stdio::counted::{self, CLOSED, NOTES, Note, Noted};
use tempfile::TempDir;
use tokio::process::Command;

const PROGRAM: &str = "stdio-counting";

/// A server that is a command.
#[derive(Debug)]
pub(crate) struct Processes {
    program: PathBuf,
    /// Holds what they write down, and what closes the server.
    directory: TempDir,
}

impl Processes {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = std::env::current_exe()?.with_file_name(PROGRAM);
        ensure!(program.exists(), "{} does not exist", program.display());
        let directory = tempfile::tempdir()?;
        Ok(Self { program, directory })
    }

    /// The server in the gateway's configuration, with this budget in seconds.
    pub(crate) fn config(&self, budget: u64) -> String {
        format!(
            "[servers.p]\ncommand = [{:?}]\nrecovery_budget = \"{budget}s\"\n\
             [servers.p.env]\n{NOTES} = {:?}\n{CLOSED} = {:?}\n",
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
        let opened = notes.iter().filter(|note| note.what == Noted::Opened);
        let pids: BTreeSet<_> = opened.map(|note| note.pid).collect();
        let is_alive = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(PROGRAM)
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

    /// Whether those that are started exit at once.
    pub(crate) fn close(&self, is_closed: bool) -> std::io::Result<()> {
        match is_closed {
            true => std::fs::write(self.closed(), ""),
            // Another strike may have opened it already.
            false => match std::fs::remove_file(self.closed()) {
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
