//! Noticing that the configuration file changed.
//!
//! The folder is watched, not the file: editors replace the file, and Kubernetes swaps a symbolic
//! link beside it. So any event in the folder is a reason to look, and only other contents than
//! last time are a change.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// How long a folder must be quiet: whoever writes may not be done.
const QUIET: Duration = Duration::from_millis(200);

/// How long to wait for quiet in a folder that never is.
const AT_MOST: Duration = Duration::from_secs(2);

/// A watched file.
#[derive(Debug)]
pub(crate) struct Watch {
    path: PathBuf,
    /// What the file held when it was last looked at; nothing when it could not be read.
    seen: Option<Vec<u8>>,
    events: mpsc::Receiver<()>,
    /// It watches until it is dropped.
    _watcher: RecommendedWatcher,
}

// === impl Watch ===

impl Watch {
    /// Watches from now on.
    pub(crate) fn new(path: &Path) -> notify::Result<Self> {
        // One event that waits is enough: it makes us look.
        let (happened, events) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<_>| {
            // Looking at the file is an event too. An error can mean that events were lost.
            if !event.is_ok_and(|event: notify::Event| matches!(event.kind, EventKind::Access(_))) {
                happened.try_send(()).ok();
            }
        })?;
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        watcher.watch(
            folder.unwrap_or(Path::new(".")),
            RecursiveMode::NonRecursive,
        )?;
        Ok(Self {
            path: path.to_owned(),
            seen: contents(path),
            events,
            _watcher: watcher,
        })
    }

    /// Waits until the file holds something else than before, or is gone or back.
    pub(crate) async fn changed(&mut self) {
        loop {
            if self.events.recv().await.is_none() {
                return std::future::pending().await;
            }
            let since = Instant::now();
            while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {
                if since.elapsed() > AT_MOST {
                    break;
                }
            }
            let now = contents(&self.path);
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

/// A hash, because the file may hold secrets.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let contents = fs::read(path).ok()?;
    Some(digest(&SHA256, &contents).as_ref().to_vec())
}

#[cfg(test)]
mod tests;
