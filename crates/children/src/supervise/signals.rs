//! The supervisor's signals: a child that exited, and requests to end.

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

/// Signals that arrived. Can be polled.
#[derive(Debug)]
pub(super) struct Signals {
    arrived: UnixStream,
    end: Arc<AtomicBool>,
}

impl Signals {
    /// Handles signals from now on.
    ///
    /// A signal that has a handler here has its default meaning in a child again. One that is ignored, for
    /// example because the gateway was started with `nohup`, would be ignored in every child, too.
    pub(super) fn new() -> io::Result<Self> {
        let (arrived, sender) = UnixStream::pair()?;
        arrived.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let end = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT, SIGHUP, SIGQUIT] {
            flag::register(signal, Arc::clone(&end))?;
            pipe::register(signal, sender.try_clone()?)?;
        }
        pipe::register(SIGCHLD, sender)?;
        for signal in ignored_signals() {
            // The system refuses handlers for some.
            if flag::register(signal, Arc::default()).is_err() {
                tracing::debug!(signal, "stays ignored");
            }
        }
        Ok(Self { arrived, end })
    }

    /// Forgets what arrived.
    pub(super) fn clear(&self) {
        let mut arrived = &self.arrived;
        while matches!(arrived.read(&mut [0; 64]), Ok(1..)) {}
    }

    /// Whether a signal asked this process to end.
    pub(super) fn asked_to_end(&self) -> bool {
        self.end.load(Ordering::Relaxed)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arrived.as_fd()
    }
}

/// The signals that this process ignores, without SIGPIPE, for which the standard library cares.
fn ignored_signals() -> Vec<i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    let is_ignored = |signal: &i32| mask >> (signal - 1) & 1 == 1;
    (1..32)
        .filter(|signal| is_ignored(signal) && *signal != signal_hook::consts::SIGPIPE)
        .collect()
}
