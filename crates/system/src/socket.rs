//! Options that every TCP connection of the gateway has set.

use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// A peer that disappeared without closing is noticed after about a minute.
const KEEP_ALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TRIES: u32 = 3;

/// Switches TCP keep-alive on: the system probes whether the peer is still there.
pub fn keep_alive(stream: &impl AsFd) {
    let probes = TcpKeepalive::new()
        .with_time(KEEP_ALIVE_AFTER)
        .with_interval(KEEP_ALIVE_EVERY)
        .with_retries(KEEP_ALIVE_TRIES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}
