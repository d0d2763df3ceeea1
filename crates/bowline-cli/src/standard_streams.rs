//! Standard input and output for asynchronous use. Editors pass pipes or sockets, which the system can wait for:
//! a message then costs no switch to a thread that blocks. Anything else (a terminal, a file) gets such a thread.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input.
pub(crate) fn input() -> io::Result<Input> {
    let file = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    // Opened anew: other processes may have the same pipe end, and must not find it non-blocking.
    if kind.is_fifo()
        && let Ok(pipe) = pipe::OpenOptions::new().open_receiver("/proc/self/fd/0")
    {
        return Ok(Box::new(pipe));
    }
    Ok(match kind.is_socket() {
        true => Box::new(socket(file)?),
        false => Box::new(tokio::fs::File::from_std(file)),
    })
}

/// Standard output.
pub(crate) fn output() -> io::Result<Output> {
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let kind = file.metadata()?.file_type();
    if kind.is_fifo()
        && let Ok(pipe) = pipe::OpenOptions::new().open_sender("/proc/self/fd/1")
    {
        return Ok(Box::new(pipe));
    }
    Ok(match kind.is_socket() {
        true => Box::new(socket(file)?),
        false => Box::new(tokio::fs::File::from_std(file)),
    })
}

/// A socket cannot be opened anew. An editor that makes one (Node does) keeps no copy of this end.
fn socket(file: File) -> io::Result<tokio::net::UnixStream> {
    let socket = UnixStream::from(OwnedFd::from(file));
    socket.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(socket)
}
