//! The gateway's end of the connection to one supervisor process.

mod serve;
mod table;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::process::Stdio;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::TaskTracker;

use self::serve::{Connection, Outgoing};
pub(crate) use self::table::Progress;
use self::table::{Asked, Table};
use crate::command::SupervisorCommand;
use crate::protocol::{LARGEST_FRAME, Request};
use crate::spawn::{Failure, FailureKind, Spawn, SpawnError, TAG};

/// Requests to a supervisor. When the last owner drops it, the supervisor ends what is left, and exits.
#[derive(Debug)]
pub(crate) struct Link {
    requests: mpsc::UnboundedSender<Outgoing>,
    table: Arc<Table>,
    supervisor: Option<u32>,
    /// What the tags of this supervisor's children begin with.
    tag: String,
}

impl Link {
    /// Starts a supervisor, and waits until it is ready.
    pub(crate) async fn start(
        command: &SupervisorCommand,
        tasks: &TaskTracker,
    ) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let stream = UnixStream::from_std(ours)?;
        let mut process = Command::new(&command.program);
        if let Some(name) = &command.name {
            process.arg0(name);
        }
        process.args(&command.arguments);
        // Secrets of the gateway's are of no use to it. The environments of children come with the requests for them.
        process.env_clear();
        if let Some(outer) = std::env::var_os(TAG) {
            process.env(TAG, outer);
        }
        process
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let spawned = process.spawn()?;
        // It holds the supervisor's end of the socket.
        drop(process);
        let (requests, outgoing) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        let link = Self {
            requests,
            table: Arc::default(),
            supervisor: spawned.id(),
            tag: random_tag(),
        };
        let connection = Connection {
            stream,
            process: spawned,
            table: Arc::clone(&link.table),
            tag: link.tag.clone(),
        };
        tasks.spawn(connection.serve(outgoing, ready));
        match is_ready.await {
            Ok(()) => Ok(link),
            Err(_) => Err(io::Error::other("it exited before it was ready")),
        }
    }

    /// Asks for a child.
    pub(crate) fn spawn(
        &self,
        spawn: &Spawn,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Asked, SpawnError> {
        let asked = self.table.insert().ok_or(SpawnError::SupervisorGone)?;
        let (id, spawn) = (asked.id, spawn.clone());
        let tag = format!("{}-{id}", self.tag);
        let request = Request::Spawn { id, tag, spawn };
        let frame = request.encode();
        if frame.len() > LARGEST_FRAME {
            let errno = rustix::io::Errno::TOOBIG.raw_os_error();
            let kind = FailureKind::Refused;
            self.table.failed(id, Failure { kind, errno });
        } else {
            self.queue(Outgoing::Frame(frame, descriptors));
        }
        Ok(asked)
    }

    /// Sends a request; a supervisor that is gone needs none.
    pub(crate) fn send(&self, request: &Request) {
        self.queue(Outgoing::Frame(request.encode(), Vec::new()));
    }

    /// Ends all children and the supervisor.
    pub(crate) fn close(&self) {
        self.queue(Outgoing::Close);
    }

    /// Whether the supervisor is gone.
    pub(crate) fn is_closed(&self) -> bool {
        self.table.is_closed()
    }

    /// Waits until a supervisor that is gone has left no process behind.
    pub(crate) async fn cleaned_up(&self) {
        self.table.cleaned_up().await;
    }

    /// The process id of the supervisor.
    pub(crate) fn supervisor(&self) -> Option<u32> {
        self.supervisor
    }

    fn queue(&self, outgoing: Outgoing) {
        if self.requests.send(outgoing).is_err() {
            tracing::trace!("the supervisor is gone");
        }
    }
}

/// 128 bits that no other supervisor on this machine has.
fn random_tag() -> String {
    use std::hash::{BuildHasher as _, RandomState};
    let state = RandomState::new();
    format!("{:016x}{:016x}", state.hash_one(0_u8), state.hash_one(1_u8))
}
