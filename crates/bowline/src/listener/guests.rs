//! Connections of which there are only so many, and of which the oldest gives way to the next.
//!
//! Where somebody must always get in, whoever came before cannot be what decides. The one that gives way
//! is of the address that has most, so a crowd from one address sends nobody else away.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use tokio::task::JoinHandle;

/// The tasks of such connections, the oldest first.
#[derive(Debug)]
pub(super) struct Guests {
    limit: usize,
    present: VecDeque<(IpAddr, JoinHandle<()>)>,
}

impl Guests {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            present: VecDeque::with_capacity(limit),
        }
    }

    /// Waits until there is room for one more. That takes no time: who gives way is not asked.
    pub(super) async fn make_room(&mut self) {
        if self.present.len() < self.limit {
            return;
        }
        self.present.retain(|(_, guest)| !guest.is_finished());
        while self.present.len() >= self.limit
            && let Some((_, guest)) = self.next_to_leave()
        {
            guest.abort();
            // Its end, whatever that is: its descriptor is free then.
            drop(guest.await);
        }
    }

    pub(super) fn let_in(&mut self, address: IpAddr, guest: JoinHandle<()>) {
        self.present.push_back((address, guest));
    }

    /// The oldest of the address that has most.
    fn next_to_leave(&mut self) -> Option<(IpAddr, JoinHandle<()>)> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::with_capacity(self.present.len());
        for (address, _) in &self.present {
            *counts.entry(*address).or_default() += 1;
        }
        let most = counts.values().max().copied()?;
        let is_of_most = |(address, _): &(IpAddr, _)| counts.get(address) == Some(&most);
        let oldest = self.present.iter().position(is_of_most)?;
        self.present.remove(oldest)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// A guest who stays; the receiver fails when it has left.
    fn guest() -> (JoinHandle<()>, oneshot::Receiver<()>) {
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
    async fn the_oldest_of_the_largest_crowd_gives_way() {
        let mut guests = Guests::new(4);
        let mut there = Vec::new();
        for from in [1, 2, 2, 1] {
            let (task, left) = guest();
            guests.make_room().await;
            guests.let_in(address(from), task);
            there.push(left);
        }
        let (task, _staying) = guest();
        guests.make_room().await;
        guests.let_in(address(2), task);
        assert!(there[0].try_recv() == Err(oneshot::error::TryRecvError::Closed));
        for _ in 0..2 {
            guests.make_room().await;
            guests.let_in(address(2), guest().0);
        }
        // Those of the crowd left, and the one from elsewhere stayed.
        for (place, has_left) in [(1, true), (2, true), (3, false)] {
            let left = there[place].try_recv() == Err(oneshot::error::TryRecvError::Closed);
            assert_eq!(left, has_left, "{place}");
        }
    }

    #[tokio::test]
    async fn who_has_left_sends_nobody_away() {
        let mut guests = Guests::new(2);
        let (stays, mut staying) = guest();
        guests.let_in(address(1), stays);
        let (leaves, _) = guest();
        leaves.abort();
        while !leaves.is_finished() {
            tokio::task::yield_now().await;
        }
        guests.let_in(address(1), leaves);
        guests.make_room().await;
        assert!(staying.try_recv() == Err(oneshot::error::TryRecvError::Empty));
    }
}
