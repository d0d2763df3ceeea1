//! Sockets: what every connection of the gateway has set, on both sides.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// A peer that died without a word is noticed after about a minute.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TRIES: u32 = 3;

/// Lets the system ask now and then whether the peer is still there.
pub(crate) fn keep_alive(stream: &TcpStream) {
    let asking = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_TRIES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&asking) {
        tracing::debug!(%error, "no keep-alive on a connection");
    }
}
