//! A limited number of connections, where a new one evicts an old one.
//!
//! For a listener on which a new connection must always get in. The evicted connection belongs to the
//! peer that has most, so that one peer cannot evict the others. Connections of the gateway's own user are
//! evicted only by each other. Whose a connection is may have to be asked, which takes long. So that is done only if
//! nobody is known whose turn it is, and then for all: after that, as many as are strangers can come before it is
//! asked again.

use std::collections::{HashMap, VecDeque};

use bowline_system::socket_owner;
use tokio::task::JoinHandle;

use super::own_peers::Addresses;
use crate::net::Peer;

/// The tasks of connections, oldest first.
#[derive(Debug)]
pub(super) struct EvictingTasks {
    limit: usize,
    tasks: VecDeque<(Peer, JoinHandle<()>)>,
}

impl EvictingTasks {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            tasks: VecDeque::with_capacity(limit),
        }
    }

    /// Makes room for one more task. This does not wait for clients: the evicted task is aborted.
    /// `own`: which peers are the own user's.
    pub(super) async fn make_room<F: Future<Output = Addresses>>(&mut self, own: impl Fn() -> F) {
        if self.tasks.len() < self.limit {
            return;
        }
        self.tasks.retain(|(_, task)| !task.is_finished());
        if self.tasks.len() >= self.limit {
            self.look_up(own).await;
        }
        while self.tasks.len() >= self.limit
            && let Some((_, task)) = self.next_to_evict()
        {
            task.abort();
            // After this its file descriptor is free. The result does not matter.
            drop(task.await);
        }
    }

    pub(super) fn add(&mut self, peer: Peer, task: JoinHandle<()>) {
        self.tasks.push_back((peer.counted_as(), task));
    }

    /// Asks whose the connections are, unless some are known to be strangers'.
    async fn look_up<F: Future<Output = Addresses>>(&mut self, own: impl Fn() -> F) {
        let mut peers = self.tasks.iter().map(|(peer, _)| peer);
        if peers.any(|peer| matches!(peer, Peer::Address(_))) {
            return;
        }
        let mut peers = self.tasks.iter().map(|(peer, _)| peer);
        if !peers.any(|peer| matches!(peer, Peer::Local(_))) {
            return;
        }
        let (own, user) = (own().await, socket_owner::user());
        for (peer, _) in &mut self.tasks {
            if let Peer::Local(address) = *peer {
                *peer = match own.contains(&address) {
                    true => Peer::User(user),
                    false => Peer::Address(address.ip()),
                };
            }
        }
    }

    /// The oldest task of the peer that has most; of the own user's only if there are no others.
    fn next_to_evict(&mut self) -> Option<(Peer, JoinHandle<()>)> {
        let mut counts: HashMap<Peer, usize> = HashMap::with_capacity(self.tasks.len());
        for (peer, _) in &self.tasks {
            *counts.entry(*peer).or_default() += 1;
        }
        let rank = |peer: &Peer| {
            let is_stranger = match peer {
                Peer::Address(_) => Some(true),
                Peer::Local(_) => Some(false),
                Peer::User(_) => None,
            };
            (is_stranger, counts.get(peer).copied())
        };
        let most = counts.keys().map(rank).max()?;
        let is_of_most = |(peer, _): &(Peer, _)| rank(peer) == most;
        let oldest = self.tasks.iter().position(is_of_most)?;
        self.tasks.remove(oldest)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};
    use std::net::SocketAddr;

    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// A task that does not end; the receiver fails when it was aborted.
    fn endless() -> (JoinHandle<()>, oneshot::Receiver<()>) {
        let (staying, left) = oneshot::channel();
        let task = TaskTracker::new().spawn(async move {
            std::future::pending::<()>().await;
            drop(staying);
        });
        (task, left)
    }

    fn nobody() -> Ready<Addresses> {
        ready(Addresses::default())
    }

    fn address(last: u8) -> Peer {
        Peer::Address([192, 0, 2, last].into())
    }

    #[tokio::test]
    async fn the_oldest_of_the_address_with_most_is_evicted() {
        let mut all = EvictingTasks::new(4);
        let mut there = Vec::new();
        for from in [1, 2, 2, 1] {
            let (task, left) = endless();
            all.make_room(nobody).await;
            all.add(address(from), task);
            there.push(left);
        }
        let (task, _staying) = endless();
        all.make_room(nobody).await;
        all.add(address(2), task);
        assert!(there[0].try_recv() == Err(oneshot::error::TryRecvError::Closed));
        for _ in 0..2 {
            all.make_room(nobody).await;
            all.add(address(2), endless().0);
        }
        // Connections of the address with most are gone; the other one stayed.
        for (place, has_left) in [(1, true), (2, true), (3, false)] {
            let left = there[place].try_recv() == Err(oneshot::error::TryRecvError::Closed);
            assert_eq!(left, has_left, "{place}");
        }
    }

    #[tokio::test]
    async fn strangers_do_not_evict_the_own_user() {
        let mut all = EvictingTasks::new(3);
        let mut own = Vec::new();
        for _ in 0..2 {
            let (task, left) = endless();
            all.add(Peer::User(7), task);
            own.push(left);
        }
        for from in 1..20 {
            all.make_room(nobody).await;
            all.add(address(from % 2), endless().0);
        }
        for left in &mut own {
            assert!(left.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        }
        // Only the own user's others do.
        for _ in 0..3 {
            all.make_room(nobody).await;
            all.add(Peer::User(7), endless().0);
        }
        assert!(own[0].try_recv() == Err(oneshot::error::TryRecvError::Closed));
    }

    #[tokio::test]
    async fn who_is_the_own_user_is_asked_once_for_many() {
        let mut all = EvictingTasks::new(8);
        let asked = std::cell::Cell::new(0);
        let peer = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let own = Addresses::new((0..2).map(peer).collect());
        let mut there = Vec::new();
        for port in 0..62 {
            let (task, left) = endless();
            all.make_room(|| {
                asked.set(asked.get() + 1);
                ready(Addresses::clone(&own))
            })
            .await;
            all.add(Peer::Local(peer(port)), task);
            there.push(left);
        }
        let is_there = |left: &mut oneshot::Receiver<()>| {
            left.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        };
        let left: Vec<_> = there.iter_mut().map(is_there).collect();
        // The own user's two stayed, and the newest six of the others.
        let stayed: Vec<_> = (0..62).filter(|&port| left[port]).collect();
        assert_eq!(stayed, [0, 1, 56, 57, 58, 59, 60, 61]);
        // Six strangers are known each time.
        assert_eq!(asked.get(), 9);
    }

    #[tokio::test]
    async fn a_finished_task_evicts_none() {
        let mut all = EvictingTasks::new(2);
        let (stays, mut staying) = endless();
        all.add(address(1), stays);
        let (leaves, _) = endless();
        leaves.abort();
        while !leaves.is_finished() {
            tokio::task::yield_now().await;
        }
        all.add(address(1), leaves);
        all.make_room(nobody).await;
        assert!(staying.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }
}
