//! Telling a client that there is no room for its connection.
//!
//! Everybody is told: the answer is small, and is the system's to deliver as soon as it is written. What
//! takes time is to read on for a moment, because a connection that closes on unread bytes takes its answer
//! with it. Only so many are read on at once, and who comes then cuts that short for the oldest, whose
//! request has mostly been read by then.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Shutdown};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;

use super::crowd::Crowded;
use super::guests::Guests;

/// How many are read on from at the same time. They are open files beyond the limit of connections.
pub(crate) const AT_ONCE: usize = 64;

/// How long a client has to hear it, and how much of its request is read meanwhile.
const TIME: Duration = Duration::from_secs(1);
const READ: u64 = 256 * 1024;

/// The most that is read where there is no time.
const READ_IN_PASSING: usize = 16 * 1024;

/// The clients that are being told.
#[derive(Debug)]
pub(super) struct Refusals(Guests);

impl Default for Refusals {
    fn default() -> Self {
        Self(Guests::new(AT_ONCE))
    }
}

impl Refusals {
    /// Tells a client at this address.
    pub(super) async fn tell(
        &mut self,
        (stream, from): (TcpStream, IpAddr),
        why: Crowded,
        tracker: &TaskTracker,
    ) {
        if say(&stream, why).is_err() {
            return;
        }
        self.0.make_room().await;
        let reading_on = async move {
            let (mut rest, mut nowhere) = (stream.take(READ), tokio::io::sink());
            let reading = tokio::io::copy(&mut rest, &mut nowhere);
            // Whoever does not listen is not told.
            drop(tokio::time::timeout(TIME, reading).await);
        };
        self.0.let_in(from, tracker.spawn(reading_on));
    }
}

/// Tells a client whose very descriptor is one too many: what of its request has come is read, and no
/// more is waited for.
pub(super) fn tell_in_passing(stream: &TcpStream, why: Crowded) {
    let mut unread = [MaybeUninit::uninit(); READ_IN_PASSING];
    // Whoever does not listen is not told.
    drop(SockRef::from(stream).recv(&mut unread));
    drop(say(stream, why));
}

/// Writes the answer and ends our side. Both are the system's at once: a new connection has room for it.
fn say(stream: &TcpStream, why: Crowded) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.send(response(why).as_bytes())?;
    socket.shutdown(Shutdown::Write)
}

fn response(why: Crowded) -> String {
    let fault = why.fault();
    let (telling, body) = (fault.telling(), fault.body(None));
    format!(
        "HTTP/1.1 {}\r\ncontent-type: application/json\r\nretry-after: {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        telling.status,
        telling.retry_after.unwrap_or_default(),
        body.len(),
    )
}
