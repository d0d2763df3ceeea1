//! Which children a supervisor has, and who waits for news of them.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};

use crate::exit::Exit;
use crate::protocol::{ChildId, Event};
use crate::spawn::Failure;

/// The children of one supervisor.
#[derive(Debug, Default)]
pub(super) struct Table {
    children: Mutex<Children>,
    /// Whether the supervisor is gone, and all that it started.
    cleaned_up: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Children {
    last: ChildId,
    closed: bool,
    entries: HashMap<ChildId, Entry>,
}

/// Those who wait for news of a child.
#[derive(Debug)]
struct Entry {
    pid: Option<i32>,
    spawned: Option<oneshot::Sender<Result<i32, Failure>>>,
    progress: watch::Sender<Progress>,
}

/// How far a child's life has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    pub(crate) exit: Option<Exit>,
    /// Neither the child nor any descendant is left.
    pub(crate) gone: bool,
}

/// A child that was asked for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: ChildId,
    /// Its process id, when it was started.
    pub(crate) spawned: oneshot::Receiver<Result<i32, Failure>>,
    pub(crate) progress: watch::Receiver<Progress>,
}

impl Table {
    /// Adds a child, unless the supervisor is gone.
    pub(super) fn insert(&self) -> Option<Asked> {
        let mut children = self.children.lock();
        if children.closed {
            return None;
        }
        children.last += 1;
        let id = children.last;
        let (sender, spawned) = oneshot::channel();
        let (watched, progress) = watch::channel(Progress::default());
        let entry = Entry {
            pid: None,
            spawned: Some(sender),
            progress: watched,
        };
        children.entries.insert(id, entry);
        Some(Asked {
            id,
            spawned,
            progress,
        })
    }

    /// Passes on what the supervisor reports.
    pub(super) fn report(&self, event: Event) {
        match event {
            Event::Ready => {}
            Event::Spawned { id, pid } => self.spawned(id, Ok(pid)),
            Event::Failed { id, failure } => self.failed(id, failure),
            Event::Exited { id, exit } => {
                if let Some(entry) = self.children.lock().entries.get(&id) {
                    entry
                        .progress
                        .send_modify(|progress| progress.exit = Some(exit));
                }
            }
            Event::Gone { id } => {
                if let Some(entry) = self.children.lock().entries.remove(&id) {
                    entry.finish();
                }
            }
        }
    }

    /// A child was not started.
    pub(super) fn failed(&self, id: ChildId, failure: Failure) {
        self.spawned(id, Err(failure));
        if let Some(entry) = self.children.lock().entries.remove(&id) {
            entry.finish();
        }
    }

    /// The supervisor is gone: no child can be added, and nobody knows how those that run will exit.
    pub(super) fn close(&self) {
        let mut children = self.children.lock();
        children.closed = true;
        for entry in children.entries.values_mut() {
            entry.spawned = None;
            entry.progress.send_modify(|progress| {
                progress.exit.get_or_insert(Exit::Unknown);
            });
        }
    }

    /// No child of the supervisor that is gone is left.
    pub(super) fn clean_up(&self) {
        let entries = std::mem::take(&mut self.children.lock().entries);
        entries.into_values().for_each(Entry::finish);
        self.cleaned_up.send_replace(true);
    }

    /// Whether the supervisor is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.children.lock().closed
    }

    /// The process ids of the children that are left.
    pub(super) fn left(&self) -> Vec<i32> {
        let children = self.children.lock();
        children
            .entries
            .values()
            .filter_map(|entry| entry.pid)
            .collect()
    }

    /// Waits for [`clean_up`](Self::clean_up).
    pub(super) async fn cleaned_up(&self) {
        let mut cleaned_up = self.cleaned_up.subscribe();
        if cleaned_up.wait_for(|done| *done).await.is_err() {
            tracing::trace!("the table outlives this wait");
        }
    }

    fn spawned(&self, id: ChildId, result: Result<i32, Failure>) {
        let mut children = self.children.lock();
        let entry = children.entries.get_mut(&id);
        let waiting = entry.and_then(|entry| {
            entry.pid = result.ok();
            entry.spawned.take()
        });
        // Who gave up waiting has dropped the child, which ends it.
        if let Some(Err(_)) = waiting.map(|waiting| waiting.send(result)) {
            tracing::debug!("nobody waits for a child that was started");
        }
    }
}

impl Entry {
    fn finish(self) {
        self.progress.send_modify(|progress| {
            progress.exit.get_or_insert(Exit::Unknown);
            progress.gone = true;
        });
    }
}
