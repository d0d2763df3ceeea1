//! Noticing that a file changed: the configuration, the certificate of the listener, its key.
//!
//! The folder is watched, not the file: editors replace the file, and Kubernetes swaps a symbolic
//! link beside it. So any event in the folder is a reason to look, and only other contents than
//! last time are a change. There is no event when a link above the folder is swapped, when the folder itself is
//! replaced, or on a network's disk. So the files are looked at now and then as well.

use std::fs;
use std::io::Read as _;
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

/// How often files are looked at without an event.
const EVERY: Duration = Duration::from_secs(60);

/// Files that are watched together.
#[derive(Debug)]
pub(crate) struct Watch {
    paths: Vec<PathBuf>,
    /// What the files held when they were last looked at; nothing for one that could not be read.
    seen: Vec<Option<Vec<u8>>>,
    events: mpsc::Receiver<()>,
    /// It watches until it is dropped.
    _watcher: RecommendedWatcher,
}

// === impl Watch ===

impl Watch {
    /// Watches from now on.
    pub(crate) fn new(paths: &[&Path]) -> notify::Result<Self> {
        // One event that waits is enough: it makes us look.
        let (happened, events) = mpsc::channel(1);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<_>| {
            // Looking at the file is an event too. An error can mean that events were lost.
            if !event.is_ok_and(|event: notify::Event| matches!(event.kind, EventKind::Access(_))) {
                happened.try_send(()).ok();
            }
        })?;
        for path in paths {
            let folder = path.parent().filter(|folder| *folder != Path::new(""));
            watcher.watch(
                folder.unwrap_or(Path::new(".")),
                RecursiveMode::NonRecursive,
            )?;
        }
        let paths: Vec<_> = paths.iter().map(|path| path.to_path_buf()).collect();
        Ok(Self {
            seen: contents(&paths),
            paths,
            events,
            _watcher: watcher,
        })
    }

    /// Waits until the files hold something else than before, or one is gone or back.
    pub(crate) async fn changed(&mut self) {
        loop {
            match timeout(EVERY, self.events.recv()).await {
                Ok(Some(())) | Err(_) => {}
                Ok(None) => return std::future::pending().await,
            }
            let since = Instant::now();
            while let Ok(Some(())) = timeout(QUIET, self.events.recv()).await {
                if since.elapsed() > AT_MOST {
                    break;
                }
            }
            let now = contents(&self.paths);
            if now != self.seen {
                self.seen = now;
                return;
            }
        }
    }
}

/// So much of a file is looked at. No configuration and no certificate is larger.
const LARGEST: u64 = 16 * 1024 * 1024;

/// Hashes, because the files may hold secrets. A pipe would wait for somebody who may never write, and a device has no
/// end: what is no file counts as missing.
fn contents(paths: &[PathBuf]) -> Vec<Option<Vec<u8>>> {
    let read = paths.iter().map(|path| {
        fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        let mut contents = Vec::new();
        let file = fs::File::open(path).ok()?;
        file.take(LARGEST).read_to_end(&mut contents).ok()?;
        Some(digest(&SHA256, &contents).as_ref().to_vec())
    });
    read.collect()
}

#[cfg(test)]
mod tests;
