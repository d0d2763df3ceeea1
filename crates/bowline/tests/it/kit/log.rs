//! What a gateway logs, for tests that look into it.

use std::sync::Arc;

use parking_lot::Mutex;

/// What is logged in this test's thread, as text.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps everything from now on, until the guard is dropped.
    pub(crate) fn keep(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || log.clone());
        tracing::subscriber::set_default(subscriber.finish())
    }

    pub(crate) fn contains(&self, text: &str) -> bool {
        !self.lines_with(text).is_empty()
    }

    /// The lines that have this text.
    pub(crate) fn lines_with(&self, text: &str) -> Vec<String> {
        let log = self.0.lock();
        let log = String::from_utf8_lossy(&log);
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
