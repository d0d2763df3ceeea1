//! Options that every TCP connection of the gateway has set.

use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// How often a silent peer is probed, after half the time that it may be silent.
const PROBES: u32 = 3;

/// Breaks a connection whose peer has disappeared without closing it: the system probes one that is silent for
/// about this long.
pub fn probe(stream: &impl AsFd, silence: Duration) {
    let probes = TcpKeepalive::new()
        .with_time(silence / 2)
        .with_interval(silence / 2 / PROBES)
        .with_retries(PROBES);
    if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&probes) {
        tracing::debug!(%error, "cannot set TCP keep-alive");
    }
}

/// The same also while something was sent: otherwise the system would repeat that for a quarter of an hour. A
/// peer that is there and reads nothing for so long counts as gone, too.
pub fn probe_always(stream: &impl AsFd, silence: Duration) {
    probe(stream, silence);
    #[cfg(target_os = "linux")]
    if let Err(error) = SockRef::from(stream).set_tcp_user_timeout(Some(silence)) {
        tracing::debug!(%error, "cannot set the TCP user timeout");
    }
}
