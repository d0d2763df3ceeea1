//! The step between supervisor and child: this program once more, which has the system kill the child if the
//! supervisor dies, and becomes the child.
//!
//! Only a process itself can ask for that, and only before the child's program runs. The step gets the request and the
//! child's descriptors over its stdin, and answers if it fails; otherwise the socket closes as the program begins.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use bytes::BytesMut;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};

use super::{number, spawn_failure};
use crate::protocol::{self, Event, Request};
use crate::socket::{self, PIPES};
use crate::spawn::{Failure, FailureKind, Spawn};

/// The variable that says whose step a process is.
const STEP_OF: &str = "BOWLINE_STEP_OF";

/// Whose step this process is, if it is one.
pub(in crate::supervise) fn is_of() -> Option<OsString> {
    std::env::var_os(STEP_OF)
}

/// Starts a child.
pub(super) fn start(spawn: &Spawn, tag: &OsStr, pipes: &[OwnedFd; PIPES]) -> Result<Pid, Failure> {
    let (mut socket, of_step) = UnixStream::pair().map_err(|error| spawn_failure(&error))?;
    let mut arguments = std::env::args_os();
    // The same file even after another version was installed in its place.
    let mut step = Command::new("/proc/self/exe");
    step.arg0(arguments.next().unwrap_or_default())
        .args(arguments)
        .env(STEP_OF, getpid().as_raw_nonzero().to_string())
        .stdin(OwnedFd::from(of_step))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    let spawned = step.spawn();
    // It has the step's end of the socket.
    drop(step);
    let mut child = spawned.map_err(|error| spawn_failure(&error))?;
    let request = Request::Spawn {
        id: 0,
        tag: tag.to_string_lossy().into_owned(),
        spawn: spawn.clone(),
    };
    let request = request.encode();
    let mut answer = Vec::new();
    let asked = socket::send(&socket, &request, pipes)
        .and_then(|sent| socket.write_all(&request[sent..]))
        .and_then(|()| socket.read_to_end(&mut answer));
    let failure = match (asked, answer.get(4..).map(Event::decode)) {
        (Ok(_), None) => return Ok(Pid::from_child(&child)),
        (_, Some(Ok(Event::Failed { failure, .. }))) => failure,
        // It died before it had read everything.
        (asked, _) => Failure {
            kind: FailureKind::Refused,
            errno: asked.err().map_or(0, |error| number(&error)),
        },
    };
    drop(child.wait());
    Err(failure)
}

/// Becomes the child of this supervisor. Returns only if that fails.
pub(in crate::supervise) fn become_child(of: &OsStr) -> io::Result<()> {
    // A copy, which closes as the program begins.
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (request, pipes) = receive(&mut socket)?;
    let Request::Spawn { id, tag, spawn } = request else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that.
    if getppid().is_none_or(|parent| *of != *parent.as_raw_nonzero().to_string()) {
        return Ok(());
    }
    let failure = match super::command(&spawn, tag.as_ref(), pipes) {
        Ok(command) if is_text(command.get_program()) => Failure {
            kind: FailureKind::NotExecutable,
            errno: Errno::NOEXEC.raw_os_error(),
        },
        Ok(mut command) => spawn_failure(&command.exec()),
        Err(failure) => failure,
    };
    socket.write_all(&Event::Failed { id, failure }.encode())
}

/// Whether a file is a text that names no interpreter. The system refuses it, and some C libraries would then have a
/// shell read it.
fn is_text(program: &OsStr) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(program).and_then(|file| file.take(256).read_to_end(&mut beginning));
    read.is_ok() && !beginning.starts_with(b"#!") && !beginning.contains(&0)
}

/// The request, and the descriptors that came with its first byte.
fn receive(socket: &mut UnixStream) -> io::Result<(Request, Vec<OwnedFd>)> {
    poll(&mut [PollFd::new(socket, PollFlags::IN)], None)?;
    let mut chunk = vec![0; 16 << 10];
    let first = socket::receive(&*socket, &mut chunk)?;
    let mut received = BytesMut::from(&chunk[..first.bytes]);
    loop {
        if let Some(frame) = protocol::next_frame(&mut received).map_err(io::Error::other)? {
            let request = Request::decode(&frame).map_err(io::Error::other)?;
            return Ok((request, first.descriptors.unwrap_or_default()));
        }
        let more = socket.read(&mut chunk)?;
        if more == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.extend_from_slice(&chunk[..more]);
    }
}
