//! A supervisor, children that are scripts, and what `/proc` says of them.

#![allow(dead_code, reason = "no test program needs all of it")]

use std::path::Path;
use std::time::Duration;

use bowline_children::{Child, Line, Lines, Spawn, Supervisor, SupervisorCommand};
use tokio::net::unix::pipe;

/// Short, because many of these children do not exit by themselves.
pub(crate) const SOON: Duration = Duration::from_millis(300);

pub(crate) fn supervisor() -> Supervisor {
    let program = env!("CARGO_BIN_EXE_bowline-supervise");
    Supervisor::new(SupervisorCommand::new(program))
}

pub(crate) fn sh(script: &str) -> Spawn {
    Spawn {
        argv: vec!["sh".into(), "-c".into(), script.into()],
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        cwd: None,
    }
}

pub(crate) fn python(script: &str) -> Spawn {
    let argv = vec!["python3".into(), "-c".into(), script.into()];
    Spawn { argv, ..sh("") }
}

/// The lines that a child writes.
pub(crate) struct Output(Lines<pipe::Receiver>);

impl Output {
    pub(crate) fn of(child: &mut Child) -> Self {
        Self(Lines::with_limit(child.stdout.take().unwrap(), 1 << 20))
    }

    pub(crate) async fn line(&mut self) -> Option<String> {
        match self.0.next().await.unwrap()? {
            Line::Text(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// A line of any kind.
    pub(crate) async fn any_line(&mut self) -> String {
        match self.0.next().await.unwrap().unwrap() {
            Line::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            _ => String::new(),
        }
    }

    /// A process id that a child prints.
    pub(crate) async fn pid(&mut self) -> i32 {
        self.line().await.unwrap().trim().parse().unwrap()
    }
}

/// Whether a process runs; one that exited and was not waited for does not.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Waits until a process is gone.
pub(crate) async fn gone(pid: i32) {
    let waiting = async {
        while runs(pid) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert!(gone.is_ok(), "{pid} still runs");
}

/// The processes whose parent is this one, also those that exited and were not waited for.
pub(crate) fn children_of(parent: i32) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent_of(*pid) == Some(parent)).collect()
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.split(' ').nth(1)?.parse().ok()
}

/// How many entries a directory of `/proc` has, such as descriptors or threads.
pub(crate) fn count(directory: impl AsRef<Path>) -> usize {
    let directory = directory.as_ref();
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.count(),
        Err(_) => usize::try_from(std::fs::metadata(directory).unwrap().len()).unwrap(),
    }
}

/// The memory of a process that is in use, in KiB.
pub(crate) fn resident(pid: i32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    resident.trim().trim_end_matches(" kB").parse().unwrap()
}
