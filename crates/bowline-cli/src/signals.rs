//! Being told to stop: Ctrl-C and SIGTERM.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask the program to stop. None is lost from its making on.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

// === impl Signals ===

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    #[expect(clippy::unnecessary_wraps, reason = "it can fail on Unix")]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            // There is no way to be told, so nobody tells.
            std::future::pending().await
        }
    }
}
