//! The program that runs as the supervisor.

use std::ffi::OsString;
use std::path::PathBuf;

/// The program that runs as the supervisor: it has to call [`supervise`](crate::supervise).
#[derive(Clone, Debug)]
pub struct SupervisorCommand {
    pub(crate) program: PathBuf,
    pub(crate) name: Option<OsString>,
    pub(crate) arguments: Vec<OsString>,
}

// === impl SupervisorCommand ===

impl SupervisorCommand {
    /// A program, without arguments.
    #[must_use]
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let program = program.into();
        Self {
            program,
            name: None,
            arguments: Vec::new(),
        }
    }

    /// The program that is running, with one argument. On Linux it is the same file even after another
    /// version was installed in its place.
    #[must_use]
    pub fn this_program(argument: impl Into<OsString>) -> Self {
        let name = std::env::args_os().next();
        #[cfg(target_os = "linux")]
        let program = Some(PathBuf::from("/proc/self/exe"));
        #[cfg(not(target_os = "linux"))]
        let program = std::env::current_exe().ok();
        let program = program
            .or_else(|| name.clone().map(PathBuf::from))
            .unwrap_or_default();
        Self {
            program,
            name,
            arguments: vec![argument.into()],
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: impl IntoIterator<Item: Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }
}
