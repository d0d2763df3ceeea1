//! Bytes and descriptors over the socket between gateway and supervisor, without waiting.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// How many descriptors a child gets: stdin, stdout, stderr.
pub(crate) const PIPES: usize = 3;

/// What was received at once.
#[derive(Debug)]
pub(crate) struct Received {
    /// How many bytes; 0 is the end.
    pub(crate) bytes: usize,
    /// The descriptors that came with one frame, if any did. They are fewer than were sent if this process
    /// may not open more.
    pub(crate) descriptors: Option<Vec<OwnedFd>>,
}

/// Sends bytes, and descriptors with the first of them.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<usize> {
    let descriptors: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PIPES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        flags,
    )?)
}

/// Receives what is there. The system never joins the descriptors of two sends.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(PIPES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut control, flags)?;
    let mut descriptors = None;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            descriptors.get_or_insert_with(Vec::new).extend(received);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        descriptors.get_or_insert_with(Vec::new);
    }
    #[cfg(not(target_os = "linux"))]
    for descriptor in descriptors.iter().flatten() {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok(Received {
        bytes: message.bytes,
        descriptors,
    })
}
