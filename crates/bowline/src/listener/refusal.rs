//! The response to a client whose connection is over the limits.
//!
//! Every such client gets a response: it is small, and the system delivers it as soon as it is written.
//! The connection must then be read for a moment, because closing it with unread bytes discards the
//! response. Only a limited number are read at once; one more ends the oldest early, whose request has
//! mostly been read by then.

use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio_util::task::TaskTracker;

use super::evicting::EvictingTasks;
use super::own_peers::Addresses;
use crate::descriptors::REFUSED_AT_ONCE;
use crate::net::Peer;

/// How long a client has to read the response, and how much of its request is read meanwhile.
const TIME: Duration = Duration::from_secs(1);
const READ: u64 = 256 * 1024;

/// The maximum that is read when the connection must close at once.
const READ_AT_ONCE: usize = 16 * 1024;

/// The refused connections that are still being read.
#[derive(Debug)]
pub(super) struct Refusals(EvictingTasks);

impl Default for Refusals {
    fn default() -> Self {
        Self(EvictingTasks::new(REFUSED_AT_ONCE))
    }
}

impl Refusals {
    /// Sends the response to a client and closes the connection.
    pub(super) async fn answer<S>(
        &mut self,
        stream: S,
        peer: Peer,
        response: &[u8],
        tracker: &TaskTracker,
    ) where
        S: AsyncRead + AsFd + Send + Unpin + 'static,
    {
        if write(&stream, response).is_err() {
            return;
        }
        // The gateway's own user is not refused.
        let nobody = || std::future::ready(Addresses::default());
        self.0.make_room(nobody).await;
        let reading_on = async move {
            let (mut rest, mut nowhere) = (stream.take(READ), tokio::io::sink());
            let reading = tokio::io::copy(&mut rest, &mut nowhere);
            // A client that does not read misses the response.
            drop(tokio::time::timeout(TIME, reading).await);
        };
        self.0.add(peer, tracker.spawn(reading_on));
    }
}

/// Answers a client whose connection uses a reserved file descriptor: reads what has arrived of its
/// request and does not wait for more.
pub(super) fn answer_at_once(stream: &impl AsFd, response: &[u8]) {
    let mut unread = [MaybeUninit::uninit(); READ_AT_ONCE];
    // A client that does not read misses the response.
    drop(SockRef::from(stream).recv(&mut unread));
    drop(write(stream, response));
}

/// Writes the response and closes our side. This does not block: a new connection has room for it.
fn write(stream: &impl AsFd, response: &[u8]) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.send(response)?;
    socket.shutdown(Shutdown::Write)
}
