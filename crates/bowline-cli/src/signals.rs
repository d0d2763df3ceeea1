//! The signals of the process: Ctrl-C and SIGTERM stop it, SIGHUP reloads the configuration.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    Stop,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no SIGHUP"))]
    Reload,
}

/// The signals that the program waits for. None is lost once this exists.
#[derive(Debug)]
pub(crate) struct Signals {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
    #[cfg(unix)]
    hangup: Signal,
}

// === impl Signals ===

impl Signals {
    /// Waits for a signal to stop, and ignores others.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != SignalRequest::Stop {}
    }
}

#[cfg(unix)]
impl Signals {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Stop,
            _ = self.terminate.recv() => SignalRequest::Stop,
            _ = self.hangup.recv() => SignalRequest::Reload,
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
    pub(crate) async fn next(&mut self) -> SignalRequest {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without Ctrl-C there is no signal to wait for.
            std::future::pending::<()>().await;
        }
        SignalRequest::Stop
    }
}
