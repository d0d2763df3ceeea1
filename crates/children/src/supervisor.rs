//! The supervisor as the gateway holds it: started with the first child, and again after it died.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bowline_system::descriptors::leave_reserve;
use tokio::net::unix::pipe;
use tokio::sync::Mutex;
use tokio_util::task::TaskTracker;

use crate::child::Child;
use crate::command::SupervisorCommand;
use crate::link::Link;
use crate::spawn::{Spawn, SpawnError};

/// Starts children. Clones are the same supervisor.
#[derive(Clone, Debug)]
pub struct Supervisor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    command: SupervisorCommand,
    /// Locked while a supervisor starts, so that only one does.
    state: Mutex<State>,
    tasks: TaskTracker,
}

#[derive(Debug)]
enum State {
    Idle,
    Running(Arc<Link>),
    Stopped,
}

/// The gateway's ends of a child's pipes, and the child's.
struct Pipes {
    stdin: pipe::Sender,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    of_child: Vec<OwnedFd>,
}

// === impl Supervisor ===

impl Supervisor {
    /// A supervisor that starts with the first child.
    #[must_use]
    pub fn new(command: SupervisorCommand) -> Self {
        let state = Mutex::new(State::Idle);
        Self(Arc::new(Inner {
            command,
            state,
            tasks: TaskTracker::new(),
        }))
    }

    /// Starts a child. If this future is dropped, the child is ended.
    ///
    /// # Errors
    ///
    /// See [`SpawnError`].
    pub async fn spawn(&self, spawn: Spawn) -> Result<Child, SpawnError> {
        match self.try_spawn(&spawn).await {
            // Nobody wrote to a child that may have been started, and it was killed.
            Err(SpawnError::SupervisorGone) => self.try_spawn(&spawn).await,
            spawned => spawned,
        }
    }

    async fn try_spawn(&self, spawn: &Spawn) -> Result<Child, SpawnError> {
        let link = self.link().await?;
        let pipes = Pipes::new().map_err(SpawnError::OutOfResources)?;
        let asked = link.spawn(spawn, pipes.of_child)?;
        let mut child = Child {
            stdin: Some(pipes.stdin),
            stdout: Some(pipes.stdout),
            stderr: Some(pipes.stderr),
            id: asked.id,
            pid: 0,
            link,
            progress: asked.progress,
        };
        match asked.spawned.await {
            Ok(Ok(pid)) => {
                child.pid = pid;
                Ok(child)
            }
            Ok(Err(failure)) => Err(failure.into_error(spawn)),
            Err(_) => Err(SpawnError::SupervisorGone),
        }
    }

    /// The process id of the supervisor that runs now.
    pub async fn pid(&self) -> Option<u32> {
        match &*self.0.state.lock().await {
            State::Running(link) if !link.is_closed() => link.supervisor(),
            _ => None,
        }
    }

    /// Ends all children and the supervisor, and waits until they are gone.
    pub async fn stop(&self) {
        let state = std::mem::replace(&mut *self.0.state.lock().await, State::Stopped);
        if let State::Running(link) = state {
            link.close();
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// The connection to a supervisor that runs.
    async fn link(&self) -> Result<Arc<Link>, SpawnError> {
        let mut state = self.0.state.lock().await;
        match &*state {
            State::Stopped => return Err(SpawnError::Stopped),
            State::Running(link) if !link.is_closed() => return Ok(Arc::clone(link)),
            // What the dead supervisor left must not run beside its successor's children.
            State::Running(link) => link.cleaned_up().await,
            State::Idle => {}
        }
        let link = Link::start(&self.0.command, &self.0.tasks).await;
        let link = link.map_err(SpawnError::NoSupervisor)?;
        let link = Arc::new(link);
        *state = State::Running(Arc::clone(&link));
        Ok(link)
    }
}

// === impl Pipes ===

impl Pipes {
    fn new() -> std::io::Result<Self> {
        let (stdin, read) = pipe::pipe()?;
        let (write, stdout) = pipe::pipe()?;
        let (write_error, stderr) = pipe::pipe()?;
        leave_reserve(&stdin)?;
        leave_reserve(&stdout)?;
        leave_reserve(&stderr)?;
        let of_child = vec![
            read.into_blocking_fd()?,
            write.into_blocking_fd()?,
            write_error.into_blocking_fd()?,
        ];
        Ok(Self {
            stdin,
            stdout,
            stderr,
            of_child,
        })
    }
}
