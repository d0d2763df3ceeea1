//! Checks that no secret is logged, in every test that issues one.
//!
//! Code that issues or receives a secret [notes](note) it. When the [`Scan`] of the test ends, it
//! searches everything that was logged in the test's thread, at every level.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing::subscriber::DefaultGuard;

/// A shorter text could not be distinguished from other text.
const SHORTEST: usize = 6;

thread_local! {
    static NOTED: RefCell<Vec<(&'static str, String)>> = const { RefCell::new(Vec::new()) };
}

/// Records the log until it is dropped, and then searches it for secrets.
#[derive(Debug)]
pub struct Scan {
    said: Said,
    _keeping: DefaultGuard,
}

/// The recorded log.
#[derive(Clone, Debug, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

/// A secret of this test.
pub fn note(kind: &'static str, secret: &str) {
    if secret.len() >= SHORTEST {
        NOTED.with_borrow_mut(|noted| noted.push((kind, secret.to_owned())));
    }
}

/// The secrets in the URL of a sign-in page, Bowline's or the authorization server's.
pub fn note_url(url: &str) {
    let pairs = url.split(['?', '&', '#']);
    for (name, value) in pairs.filter_map(|pair| pair.split_once('=')) {
        match name {
            "flow" => note("flow", value),
            "state" => note("state", value),
            _ => {}
        }
    }
}

// === impl Scan ===

impl Scan {
    /// Starts recording.
    #[must_use]
    pub fn begin() -> Self {
        let said = Said::default();
        let kept = said.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_ansi(false)
            .with_writer(move || kept.clone());
        Self {
            said,
            _keeping: tracing::subscriber::set_default(subscriber.finish()),
        }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let said = self.said.0.lock();
        let said = String::from_utf8_lossy(&said);
        NOTED.with_borrow(|noted| {
            for (kind, secret) in noted {
                let line = said.lines().find(|line| line.contains(secret.as_str()));
                assert_eq!(line, None, "a {kind} is in the log");
            }
        });
    }
}

// === impl Said ===

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a state is in the log")]
    fn a_secret_that_is_logged_is_found() {
        let _scan = Scan::begin();
        note_url("http://a.example/?x=y&state=hunter2-hunter2");
        tracing::trace!("went to ?state=hunter2-hunter2");
    }

    #[test]
    fn what_is_not_logged_is_not() {
        let _scan = Scan::begin();
        note("token", "hunter2-hunter2");
        tracing::info!("went elsewhere");
    }
}
