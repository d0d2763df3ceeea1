//! The processes of the demo: each is this program, says where it listens on its first line, and ends with the
//! demo, however that ends.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use bowline_children::{Child, Line, Lines, Spawn, Supervisor, SupervisorCommand};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, copy, sink};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use crate::environment;

/// How long a process may take to listen, or to be gone.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The longest line that is looked at.
const MAX_LINE: usize = 1 << 16;

/// What starts processes.
#[derive(Debug)]
pub(super) struct Starter {
    supervisor: Supervisor,
    program: OsString,
    readers: TaskTracker,
}

/// A process that listens.
pub(super) struct Process {
    child: Child,
    address: SocketAddr,
}

// === impl Starter ===

impl Starter {
    pub(super) fn new() -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("where is this program?")?;
        Ok(Self {
            supervisor: Supervisor::new(SupervisorCommand::this_program("supervise")),
            program: program.into(),
            readers: TaskTracker::new(),
        })
    }

    /// Starts this program with these arguments, and waits until it listens.
    pub(super) async fn start(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        let program = std::iter::once(self.program.clone());
        let argv = program
            .chain(arguments.iter().map(OsString::from))
            .collect();
        let mut variables = environment::all();
        variables.remove("RUST_LOG");
        let env = variables
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let spawn = Spawn {
            argv,
            env: env.collect(),
            cwd: None,
        };
        let mut child = self.supervisor.spawn(spawn).await?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let mut lines = Lines::with_limit(stdout.context("it has no stdout")?, MAX_LINE);
        self.drain(stderr.context("it has no stderr")?);
        let line = timeout(TIMEOUT, lines.next())
            .await
            .context("it says nothing")??;
        let address = line
            .and_then(|line| address(&line))
            .with_context(|| anyhow!("{} does not say where it listens", arguments.join(" ")))?;
        self.readers
            .spawn(async move { while let Ok(Some(_)) = lines.next().await {} });
        Ok(Process { child, address })
    }

    /// Ends all processes.
    pub(super) async fn stop(&self) {
        self.supervisor.stop().await;
    }

    /// Reads what nobody needs, so that it does not stand in the way.
    fn drain(&self, mut stream: impl AsyncRead + Send + Unpin + 'static) {
        self.readers.spawn(async move {
            copy(&mut stream, &mut sink()).await.ok();
        });
    }
}

// === impl Process ===

impl Process {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills it (SIGKILL), and waits until it is gone. What it listened on is free again.
    pub(super) async fn kill(self) -> anyhow::Result<SocketAddr> {
        let pid = Pid::from_raw(self.child.pid()).context("it has no process id")?;
        kill_process(pid, Signal::KILL)?;
        let exited = timeout(TIMEOUT, self.child.exited()).await;
        exited.context("it survives SIGKILL")?;
        Ok(self.address)
    }
}

/// The address at the end of a line like `listening on http://127.0.0.1:6270`.
fn address(line: &Line) -> Option<SocketAddr> {
    let Line::Text(text) = line else { return None };
    let word = std::str::from_utf8(text).ok()?.split_whitespace().last()?;
    word.strip_prefix("http://")?.parse().ok()
}
