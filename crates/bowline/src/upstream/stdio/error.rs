//! What can go wrong with a server that is a process.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bowline_children::SpawnError;
use thiserror::Error;

use super::end::{End, quote};
use crate::share::ShareOwner;

/// What went wrong with a message to a process, or with its start.
#[derive(Debug, Error)]
pub(crate) enum ProcessError {
    #[error("its process was not started: {0}")]
    NotStarted(#[from] SpawnError),
    #[error("its process exited before it answered `initialize`: {0}")]
    ExitedAtStart(Arc<End>),
    #[error("its process did not answer `initialize` within {0:?}{1}")]
    Silent(Duration, LastWords),
    #[error("too many processes ([limits] children); retry later")]
    TooMany(ShareOwner),
    /// The process is gone, and the session with it.
    #[error("its process has ended: {end}")]
    Ended {
        end: Arc<End>,
        /// Any byte of the message was written.
        was_written: bool,
    },
    #[error("the session's process belongs to another gateway ({0}), which is present")]
    Elsewhere(Arc<str>),
    #[error(
        "this gateway could not tell the others that it is present: the session may be another's by now"
    )]
    Unsure,
    #[error("its process does not read what is sent to it; nothing of this message was written")]
    NotRead,
    #[error("its process wrote an answer that is not JSON in UTF-8")]
    Unreadable,
    #[error("too many of its processes are starting at the same time; retry later")]
    StartsTaken,
}

/// The end of what a process wrote to stderr, for an error.
#[derive(Debug)]
pub(crate) struct LastWords(pub(super) Box<str>);

impl ProcessError {
    /// Whether the command is to blame that there is no process: not this machine, nor a gateway that stops.
    pub(crate) fn is_absence(&self) -> bool {
        match self {
            Self::NotStarted(error) => !matches!(
                error,
                SpawnError::OutOfResources(_)
                    | SpawnError::NoSupervisor(_)
                    | SpawnError::SupervisorGone
                    | SpawnError::Stopped
            ),
            Self::ExitedAtStart(_) => true,
            _ => false,
        }
    }
}

impl fmt::Display for LastWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        quote(&self.0, f)
    }
}
