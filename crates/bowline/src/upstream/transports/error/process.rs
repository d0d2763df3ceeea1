//! What can go wrong with a server that is a process.

use std::sync::Arc;
use std::time::Duration;

use bowline_children::SpawnError;
use thiserror::Error;

use super::end::{End, LastWords};
use crate::share::ShareOwner;

/// What went wrong with the start of a process.
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
    #[error("too many of its processes are starting at the same time; retry later")]
    StartsTaken,
}

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
            Self::Silent(..) | Self::TooMany(_) | Self::StartsTaken => false,
        }
    }
}
