//! The response to a client whose connection is over the limits.
//!
//! Every such client gets one: it is small, and the system delivers it as soon as it is written. What takes
//! time is to read on for a moment, because a connection that closes on unread bytes loses its response.
//! Only so many are read on at once; one more cuts the oldest short, whose request has mostly been read
//! by then.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::evicting::EvictingTasks;
use crate::descriptors::REFUSED_AT_ONCE;

/// How long a client has to read the response, and how much of its request is read meanwhile.
const TIME: Duration = Duration::from_secs(1);
const READ: u64 = 256 * 1024;

/// The most that is read where there is no time.
const READ_AT_ONCE: usize = 16 * 1024;

/// The connections that are refused and read on.
#[derive(Debug)]
pub(super) struct Refusals(EvictingTasks);

impl Default for Refusals {
    fn default() -> Self {
        Self(EvictingTasks::new(REFUSED_AT_ONCE))
    }
}

impl Refusals {
    /// Answers a client at this address, and closes the connection.
    pub(super) async fn answer(
        &mut self,
        stream: TcpStream,
        address: IpAddr,
        response: &str,
        tracker: &TaskTracker,
    ) {
        if write(&stream, response).is_err() {
            return;
        }
        self.0.make_room().await;
        let reading_on = async move {
            let (mut rest, mut nowhere) = (stream.take(READ), tokio::io::sink());
            let reading = tokio::io::copy(&mut rest, &mut nowhere);
            // A client that does not read misses the response.
            drop(tokio::time::timeout(TIME, reading).await);
        };
        self.0.add(address, tracker.spawn(reading_on));
    }
}

/// Answers a client whose very descriptor is of the reserve: what of its request has come is read, and no
/// more is waited for.
pub(super) fn answer_at_once(stream: &TcpStream, response: &str) {
    let mut unread = [MaybeUninit::uninit(); READ_AT_ONCE];
    // A client that does not read misses the response.
    drop(SockRef::from(stream).recv(&mut unread));
    drop(write(stream, response));
}

/// Writes the response and ends our side. Neither waits: a new connection has room for it.
fn write(stream: &TcpStream, response: &str) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.send(response.as_bytes())?;
    socket.shutdown(Shutdown::Write)
}
