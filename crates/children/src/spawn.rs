//! What a child is started with, and why it was not.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// The variable in the environment of every child that says whose descendant a process is.
///
/// Inside of another gateway's child, the value has that gateway's tag, too, separated by a space.
pub const TAG: &str = "BOWLINE_CHILD";

/// A command, and all that it inherits.
#[derive(Clone, Debug, Default)]
pub struct Spawn {
    /// The program and its arguments. A program without a slash is searched in the `PATH` of `env`; a
    /// relative one starts in `cwd`.
    pub argv: Vec<OsString>,
    /// The whole environment, but for [`TAG`].
    pub env: Vec<(OsString, OsString)>,
    /// The working directory; without one, the gateway's.
    pub cwd: Option<PathBuf>,
}

/// Why a child was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// No such file, or none of that name in `PATH`.
    #[error("the program `{0}` was not found")]
    NotFound(String),
    /// The file may not be executed, is no program, or its interpreter (`#!`) is missing.
    #[error("the program `{0}` cannot be executed: {1}")]
    NotExecutable(String, io::Error),
    /// The working directory is missing, or not accessible.
    #[error("the working directory `{0}` cannot be used: {1}")]
    BadDirectory(String, io::Error),
    /// No process, memory or descriptor is left. It may work later.
    #[error("the system has no resources for another process: {0}")]
    OutOfResources(io::Error),
    /// Any other error of the system, such as arguments that are too long.
    #[error("the program `{0}` cannot be started: {1}")]
    Refused(String, io::Error),
    /// The supervisor process cannot be started.
    #[error("the supervisor of child processes cannot be started: {0}")]
    NoSupervisor(io::Error),
    /// The supervisor process died meanwhile, and so did the one that was started in its place.
    #[error("the supervisor of child processes died")]
    SupervisorGone,
    /// [`Supervisor::stop`](crate::Supervisor::stop) was called.
    #[error("the gateway is stopping")]
    Stopped,
}

/// A reason as the supervisor sends it, with the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) errno: i32,
}

/// Which step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    NotFound,
    NotExecutable,
    BadDirectory,
    OutOfResources,
    Refused,
}

// === impl Failure ===

impl Failure {
    /// The error for the caller, who knows the names.
    pub(crate) fn into_error(self, spawn: &Spawn) -> SpawnError {
        let program = || {
            let program = spawn.argv.first();
            program.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let error = io::Error::from_raw_os_error(self.errno);
        match self.kind {
            FailureKind::NotFound => SpawnError::NotFound(program()),
            FailureKind::NotExecutable => SpawnError::NotExecutable(program(), error),
            FailureKind::BadDirectory => {
                let directory = spawn.cwd.as_deref().unwrap_or_else(|| ".".as_ref());
                SpawnError::BadDirectory(directory.to_string_lossy().into_owned(), error)
            }
            FailureKind::OutOfResources => SpawnError::OutOfResources(error),
            FailureKind::Refused => SpawnError::Refused(program(), error),
        }
    }
}
