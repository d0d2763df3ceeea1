//! Being told to stop, by Ctrl-C and SIGTERM, or to read the configuration again, by SIGHUP.

use std::io;

#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Stop,
    #[cfg_attr(not(unix), expect(dead_code, reason = "there is no SIGHUP"))]
    Reload,
}

/// The signals that ask the program for something. None is lost from its making on.
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
    /// Waits to be told to stop, whatever else is asked for.
    pub(crate) async fn stop(&mut self) {
        while self.next().await != Told::Stop {}
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
    pub(crate) async fn next(&mut self) -> Told {
        tokio::select! {
            _ = self.interrupt.recv() => Told::Stop,
            _ = self.terminate.recv() => Told::Stop,
            _ = self.hangup.recv() => Told::Reload,
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
    pub(crate) async fn next(&mut self) -> Told {
        if tokio::signal::ctrl_c().await.is_err() {
            // There is no way to be told, so nobody tells.
            std::future::pending::<()>().await;
        }
        Told::Stop
    }
}
