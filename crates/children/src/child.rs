//! A child as the gateway holds it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::unix::pipe;
use tokio::sync::watch;

use crate::exit::Exit;
use crate::link::{Link, Progress};
use crate::protocol::{ChildId, Request};

/// How long a child may take to exit after its stdin closed, and again after SIGTERM, when nobody says
/// otherwise.
pub const GRACE: Duration = Duration::from_secs(2);

/// A child process. Dropping it ends the child and all its descendants in the background.
pub struct Child {
    /// Where the child reads. Dropping it closes the pipe.
    pub stdin: Option<pipe::Sender>,
    /// What the child writes.
    pub stdout: Option<pipe::Receiver>,
    /// Where the child complains. Somebody has to read it, or the child stops when the pipe is full.
    pub stderr: Option<pipe::Receiver>,
    pub(crate) id: ChildId,
    pub(crate) pid: i32,
    pub(crate) link: Arc<Link>,
    pub(crate) progress: watch::Receiver<Progress>,
}

// === impl Child ===

impl Child {
    /// The process id.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits until the child itself has exited; descendants may be left.
    pub fn exited(&self) -> impl Future<Output = Exit> + Send + use<> {
        let mut progress = self.progress.clone();
        async move {
            let exited = progress.wait_for(|progress| progress.exit.is_some()).await;
            exited
                .ok()
                .and_then(|progress| progress.exit)
                .unwrap_or(Exit::Unknown)
        }
    }

    /// Ends the child and all its descendants, and waits until they are gone.
    ///
    /// stdin is closed here, unless it was taken. SIGTERM follows after `grace`, or at once when only
    /// descendants are left; SIGKILL after another `grace`. stdout and stderr stay open meanwhile, unless they
    /// were taken.
    pub async fn end(mut self, grace: Duration) -> Exit {
        self.stdin = None;
        self.link.send(&Request::End { id: self.id, grace });
        let mut progress = self.progress.clone();
        let gone = progress.wait_for(|progress| progress.gone).await;
        gone.ok()
            .and_then(|progress| progress.exit)
            .unwrap_or(Exit::Unknown)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.progress.borrow().gone {
            let (id, grace) = (self.id, GRACE);
            self.link.send(&Request::End { id, grace });
        }
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Child");
        debug.field("pid", &self.pid).finish_non_exhaustive()
    }
}
