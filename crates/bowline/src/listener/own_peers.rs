//! Whose the connections of a listener on this machine are, where the system says so.
//!
//! The system has one list of all its sockets, which takes long to read where there are many, and anybody on the
//! machine can have many. So nobody is looked up when they connect, but when it matters whose a connection is, and
//! one reading answers all who ask before it begins.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// The addresses of peers.
pub(crate) type Addresses = Arc<HashSet<SocketAddr>>;

/// Reads which peers of a listener are the own user's.
type Read = dyn Fn(SocketAddr) -> HashSet<SocketAddr> + Send + Sync;

/// The peers of one listener that are the own user's.
pub(crate) struct OwnPeers {
    here: SocketAddr,
    read: Arc<Read>,
    /// How many questions there were.
    asked: AtomicU64,
    latest: Mutex<Reading>,
}

#[derive(Default)]
struct Reading {
    /// How many questions there were when it began.
    asked: u64,
    own: Addresses,
}

impl OwnPeers {
    pub(crate) fn new(
        here: SocketAddr,
        read: impl Fn(SocketAddr) -> HashSet<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        Self {
            here,
            read: Arc::new(read),
            asked: AtomicU64::new(0),
            latest: Mutex::default(),
        }
    }

    /// The peers that are the own user's now. An older reading does not count: another user could have the address of
    /// a connection that was closed.
    pub(crate) async fn now(&self) -> Addresses {
        let question = self.asked.fetch_add(1, Ordering::AcqRel) + 1;
        let mut latest = self.latest.lock().await;
        if latest.asked < question {
            let asked = self.asked.load(Ordering::Acquire);
            let (read, here) = (Arc::clone(&self.read), self.here);
            let own = spawn_blocking(move || read(here)).await;
            *latest = Reading {
                asked,
                own: Arc::new(own.unwrap_or_default()),
            };
        }
        Arc::clone(&latest.own)
    }
}

impl fmt::Debug for OwnPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnPeers")
            .field("here", &self.here)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use tokio_util::task::TaskTracker;

    use super::*;

    #[tokio::test]
    async fn one_reading_answers_all_who_asked_before_it() {
        let (go, wait) = mpsc::channel::<()>();
        let (wait, readings) = (parking_lot::Mutex::new(wait), Arc::<AtomicUsize>::default());
        let count = Arc::clone(&readings);
        let own: SocketAddr = "127.0.0.1:7".parse().unwrap();
        let peers = Arc::new(OwnPeers::new("127.0.0.1:1".parse().unwrap(), move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            wait.lock().recv().unwrap();
            HashSet::from([own])
        }));
        let asking = |_| {
            let peers = Arc::clone(&peers);
            TaskTracker::new().spawn(async move { peers.now().await.contains(&own) })
        };
        // The first begins a reading; all others ask while it goes on, and share the second.
        let mut all = vec![asking(0)];
        while readings.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        all.extend((1..100).map(asking));
        while peers.asked.load(Ordering::SeqCst) < 100 {
            tokio::task::yield_now().await;
        }
        for _ in 0..2 {
            go.send(()).unwrap();
        }
        for asked in all {
            assert!(asked.await.unwrap());
        }
        assert_eq!(readings.load(Ordering::SeqCst), 2);
        // A later question is not answered with what was read before.
        go.send(()).unwrap();
        peers.now().await;
        assert_eq!(readings.load(Ordering::SeqCst), 3);
    }
}
