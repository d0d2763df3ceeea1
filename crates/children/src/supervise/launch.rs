//! Starting a child: which file is meant, and what went wrong.

#[cfg(target_os = "linux")]
pub(super) mod step;

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::socket::PIPES;
use crate::spawn::{Failure, FailureKind, Spawn, TAG};

/// Where programs are searched if the environment of the child has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Starts a child in a process group of its own. On Linux the system kills it if this process dies.
pub(super) fn launch(
    spawn: &Spawn,
    tag: &OsStr,
    descriptors: Vec<OwnedFd>,
) -> Result<Pid, Failure> {
    #[cfg(target_os = "linux")]
    return step::start(spawn, tag, &pipes(descriptors)?);
    #[cfg(not(target_os = "linux"))]
    match command(spawn, tag, descriptors)?.process_group(0).spawn() {
        Ok(child) => Ok(Pid::from_child(&child)),
        Err(error) => Err(spawn_failure(&error)),
    }
}

fn pipes(descriptors: Vec<OwnedFd>) -> Result<[OwnedFd; PIPES], Failure> {
    // Otherwise the system gave fewer than were sent.
    let pipes = <[OwnedFd; PIPES]>::try_from(descriptors);
    pipes.map_err(|_| failure(FailureKind::OutOfResources, Errno::MFILE))
}

/// What is to be executed.
fn command(spawn: &Spawn, tag: &OsStr, descriptors: Vec<OwnedFd>) -> Result<Command, Failure> {
    let [stdin, stdout, stderr] = pipes(descriptors)?;
    let (name, arguments) = spawn
        .argv
        .split_first()
        .ok_or_else(|| failure(FailureKind::NotFound, Errno::NOENT))?;
    let directory = directory(spawn.cwd.as_deref())?;
    let program = find(name, path(&spawn.env), &directory)?;
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).env_clear();
    for (name, value) in &spawn.env {
        command.env(name, value);
    }
    command.env(TAG, tag);
    if spawn.cwd.is_some() {
        command.current_dir(&directory);
    }
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    Ok(command)
}

/// The working directory, as an absolute path.
fn directory(cwd: Option<&Path>) -> Result<PathBuf, Failure> {
    let checked = || {
        let directory = std::path::absolute(cwd.unwrap_or_else(|| Path::new(".")))?;
        // The dot is found only if the directory may be entered.
        directory.join(".").metadata().map(|_| directory)
    };
    checked().map_err(|error| Failure {
        kind: FailureKind::BadDirectory,
        errno: number(&error),
    })
}

fn path(env: &[(OsString, OsString)]) -> &OsStr {
    let path = env.iter().rev().find(|(name, _)| name == "PATH");
    path.map_or(OsStr::new(DEFAULT_PATH), |(_, value)| value)
}

/// The program's file: by its path, or searched in `PATH`.
fn find(name: &OsStr, path: &OsStr, directory: &Path) -> Result<PathBuf, Failure> {
    let candidates: Vec<PathBuf> = if name.as_encoded_bytes().contains(&b'/') {
        vec![directory.join(name)]
    } else if name.is_empty() {
        Vec::new()
    } else {
        let directories = std::env::split_paths(path);
        directories
            .map(|one| directory.join(one).join(name))
            .collect()
    };
    let mut refused = failure(FailureKind::NotFound, Errno::NOENT);
    for candidate in candidates {
        match candidate.metadata() {
            Ok(file) if is_executable(&file) => return Ok(candidate),
            Ok(_) => refused = failure(FailureKind::NotExecutable, Errno::ACCESS),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                refused = failure(FailureKind::NotExecutable, Errno::ACCESS);
            }
            Err(_) => {}
        }
    }
    Err(refused)
}

/// Whether somebody may execute it; whether this user may, the system says.
fn is_executable(file: &Metadata) -> bool {
    file.is_file() && file.permissions().mode() & 0o111 != 0
}

/// The file was there, so what is missing now is its interpreter.
fn spawn_failure(error: &io::Error) -> Failure {
    let errno = number(error);
    let kind = match Errno::from_raw_os_error(errno) {
        Errno::NOENT | Errno::ACCESS | Errno::NOEXEC | Errno::PERM | Errno::ISDIR => {
            FailureKind::NotExecutable
        }
        Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE => FailureKind::OutOfResources,
        _ => FailureKind::Refused,
    };
    Failure { kind, errno }
}

fn failure(kind: FailureKind, errno: Errno) -> Failure {
    let errno = errno.raw_os_error();
    Failure { kind, errno }
}

fn number(error: &io::Error) -> i32 {
    // The standard library refuses a zero byte by itself, without a number.
    error
        .raw_os_error()
        .unwrap_or_else(|| Errno::INVAL.raw_os_error())
}
