//! A limited number of connections, of which the next one evicts the oldest.
//!
//! Where a new connection must always get in, those before it cannot be what decides. The one that is
//! evicted is of the address that has most, so one address cannot evict the others.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use tokio::task::JoinHandle;

/// The tasks of connections, the oldest first.
#[derive(Debug)]
pub(super) struct EvictingTasks {
    limit: usize,
    tasks: VecDeque<(IpAddr, JoinHandle<()>)>,
}

impl EvictingTasks {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            tasks: VecDeque::with_capacity(limit),
        }
    }

    /// Waits until there is room for one more. That takes no time: a task that is evicted is aborted.
    pub(super) async fn make_room(&mut self) {
        if self.tasks.len() < self.limit {
            return;
        }
        self.tasks.retain(|(_, task)| !task.is_finished());
        while self.tasks.len() >= self.limit
            && let Some((_, task)) = self.next_to_evict()
        {
            task.abort();
            // Its end, whatever that is: its descriptor is free then.
            drop(task.await);
        }
    }

    pub(super) fn add(&mut self, address: IpAddr, task: JoinHandle<()>) {
        self.tasks.push_back((address, task));
    }

    /// The oldest of the address that has most.
    fn next_to_evict(&mut self) -> Option<(IpAddr, JoinHandle<()>)> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::with_capacity(self.tasks.len());
        for (address, _) in &self.tasks {
            *counts.entry(*address).or_default() += 1;
        }
        let most = counts.values().max().copied()?;
        let is_of_most = |(address, _): &(IpAddr, _)| counts.get(address) == Some(&most);
        let oldest = self.tasks.iter().position(is_of_most)?;
        self.tasks.remove(oldest)
    }
}

#[cfg(test)]
mod tests {
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

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[tokio::test]
    async fn the_oldest_of_the_address_with_most_is_evicted() {
        let mut all = EvictingTasks::new(4);
        let mut there = Vec::new();
        for from in [1, 2, 2, 1] {
            let (task, left) = endless();
            all.make_room().await;
            all.add(address(from), task);
            there.push(left);
        }
        let (task, _staying) = endless();
        all.make_room().await;
        all.add(address(2), task);
        assert!(there[0].try_recv() == Err(oneshot::error::TryRecvError::Closed));
        for _ in 0..2 {
            all.make_room().await;
            all.add(address(2), endless().0);
        }
        // Those of the address with most are gone, and the one from elsewhere stayed.
        for (place, has_left) in [(1, true), (2, true), (3, false)] {
            let left = there[place].try_recv() == Err(oneshot::error::TryRecvError::Closed);
            assert_eq!(left, has_left, "{place}");
        }
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
        all.make_room().await;
        assert!(staying.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }
}
