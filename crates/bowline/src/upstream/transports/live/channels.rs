//! All live channels of a gateway: what starts and ends them, and what they share.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::{GRACE, Supervisor, SupervisorCommand};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::unread::UnreadOverall;
use crate::owners::Owners;
use crate::share::Share;

/// How long a gateway that stops waits for its processes to be gone.
const STOPS_WITHIN: Duration = Duration::from_secs(6);

/// The live channels of a gateway.
#[derive(Debug)]
pub(crate) struct LiveChannels {
    /// Starts processes.
    supervisor: Supervisor,
    /// What reads and writes channels. Not the gateway's own: a stop waits for that before it ends processes.
    tasks: TaskTracker,
    /// Closes all of them: the stdin of a process, or the stream.
    closing: CancellationToken,
    /// How many processes there may be. Streams have a place among all streams.
    pub(crate) processes: Arc<Share>,
    /// What all of them said that was not read.
    unread: UnreadOverall,
    pub(crate) owners: Owners,
}

// === impl LiveChannels ===

impl LiveChannels {
    /// At most `limit` processes, started by this supervisor.
    pub(crate) fn new(supervisor: SupervisorCommand, limit: usize, owners: Owners) -> Self {
        Self {
            supervisor: Supervisor::new(supervisor),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            processes: Share::common(limit),
            unread: UnreadOverall::default(),
            owners,
        }
    }

    pub(in crate::upstream) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    pub(in crate::upstream) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    pub(in crate::upstream) fn unread(&self) -> &UnreadOverall {
        &self.unread
    }

    /// What closes one of them, as the gateway's stop closes all.
    pub(in crate::upstream) fn closing(&self) -> CancellationToken {
        self.closing.child_token()
    }

    /// None at all.
    #[cfg(test)]
    pub(crate) fn idle() -> Self {
        Self::new(SupervisorCommand::new("/bin/false"), 1, Owners::alone())
    }

    /// Ends all of them, like each at the end of its session: a server that reads its stdin to the end exits by
    /// itself.
    pub(crate) async fn stop(&self) {
        self.tasks.close();
        self.closing.cancel();
        drop(tokio::time::timeout(GRACE, self.tasks.wait()).await);
        let stopping = async {
            self.supervisor.stop().await;
            self.tasks.wait().await;
        };
        if tokio::time::timeout(STOPS_WITHIN, stopping).await.is_err() {
            tracing::warn!("not all processes of servers ended in time");
        }
    }
}
