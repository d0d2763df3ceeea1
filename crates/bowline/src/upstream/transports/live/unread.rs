//! How much of what a server said may wait for its readers.
//!
//! One task reads a live channel for all calls of a session, so a client that does not read would have the gateway
//! hold the answers of all of them. Every message is counted from here until its last copy is gone, wherever it
//! waits. When too much waits, the channel is not read any further, as over a connection that is full; so only the
//! session itself is held up. A session can always have a little, or one message, whatever the others hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::share::held_until_gone;

/// What a message takes at least, however short it is.
const LEAST: usize = 256;
/// The most bytes of one session that wait.
const MOST: usize = 16 << 20;
/// The most bytes of all sessions that wait, apart from what each can always have.
const MOST_OVERALL: usize = 256 << 20;
/// What a session can always have.
const ALWAYS: usize = 64 << 10;
/// How long the channel is not read before this counts as stalled.
const PATIENCE: Duration = Duration::from_secs(1);

/// What waits for the readers of one session.
#[derive(Debug, Clone, Default)]
pub(crate) struct Unread(Arc<Count>);

/// What waits for the readers of all sessions.
#[derive(Debug, Clone, Default)]
pub(in crate::upstream) struct UnreadOverall(Arc<AtomicUsize>);

#[derive(Debug, Default)]
struct Count {
    state: Mutex<State>,
    room: Notify,
    overall: UnreadOverall,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// The channel is not read, because there is no room.
    is_held_up: bool,
    /// It was not read for so long that notifications give way, until something is read.
    is_stalled: bool,
}

/// For as long as the channel is not read.
struct HeldUp<'a>(&'a Count);

/// Room for a message, until nobody has it any more.
#[derive(Debug)]
pub(in crate::upstream) struct Reserved {
    bytes: usize,
    count: Arc<Count>,
}

// === impl Unread ===

impl Unread {
    pub(in crate::upstream) fn among(overall: &UnreadOverall) -> Self {
        Self(Arc::new(Count {
            overall: overall.clone(),
            ..Count::default()
        }))
    }

    /// Counts a message until nobody has it any more, and waits for room. `None`: it may give way, and nobody reads.
    pub(super) async fn count(
        &self,
        message: Bytes,
        may_go: impl Fn(&Bytes) -> bool,
    ) -> Option<Bytes> {
        let reserved = self.room(message.len(), || may_go(&message)).await?;
        Some(reserved.until_gone(message))
    }

    /// Waits for room for a message of so many bytes, which are not here yet.
    pub(in crate::upstream) async fn reserve(&self, bytes: usize) -> Option<Reserved> {
        self.room(bytes, || false).await
    }

    async fn room(&self, bytes: usize, may_go: impl Fn() -> bool) -> Option<Reserved> {
        let (count, bytes) = (&*self.0, bytes.max(LEAST));
        let reserved = || Reserved {
            bytes,
            count: Arc::clone(&self.0),
        };
        if count.take(bytes) {
            return Some(reserved());
        }
        let _held_up = HeldUp::begin(count);
        loop {
            let room = count.room.notified();
            if count.take(bytes) {
                return Some(reserved());
            }
            let is_stalled = count.state.lock().is_stalled;
            if is_stalled && may_go() {
                return None;
            }
            if tokio::time::timeout(PATIENCE, room).await.is_err() {
                count.state.lock().is_stalled = true;
            }
        }
    }

    /// Whether the channel is not read because its readers do not read.
    pub(super) fn is_held_up(&self) -> bool {
        self.0.state.lock().is_held_up
    }
}

// === impl Count ===

impl Count {
    /// Takes room. `false`: there is none.
    fn take(&self, bytes: usize) -> bool {
        let (mut state, overall) = (self.state.lock(), &self.overall.0);
        let fits = || {
            let all = overall.load(Ordering::Relaxed);
            state.bytes + bytes <= MOST && all + bytes <= MOST_OVERALL
        };
        // A message that is larger than all room has it when nothing else waits.
        let has_room = state.bytes == 0 || state.bytes + bytes <= ALWAYS || fits();
        if has_room {
            state.bytes += bytes;
            overall.fetch_add(bytes, Ordering::Relaxed);
        }
        has_room
    }

    fn give_back(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.bytes -= bytes;
        state.is_stalled = false;
        drop(state);
        self.overall.0.fetch_sub(bytes, Ordering::Relaxed);
        self.room.notify_one();
    }
}

// === impl Reserved ===

impl Reserved {
    /// The message, which is counted until its last copy is gone.
    pub(in crate::upstream) fn until_gone(self, message: Bytes) -> Bytes {
        held_until_gone(message, self)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.count.give_back(self.bytes);
    }
}

// === impl HeldUp ===

impl<'a> HeldUp<'a> {
    fn begin(count: &'a Count) -> Self {
        count.state.lock().is_held_up = true;
        Self(count)
    }
}

impl Drop for HeldUp<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_held_up = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEVER: fn(&Bytes) -> bool = |_| false;

    fn large(bytes: usize) -> Bytes {
        Bytes::from(vec![b'x'; bytes])
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_bounded_until_its_last_copy_is_gone() {
        let unread = Unread::default();
        let mut waiting = Vec::new();
        for _ in 0..16 {
            waiting.push(unread.count(large(MOST / 16), NEVER).await.unwrap());
        }
        let mut next = std::pin::pin!(unread.count(large(MOST / 16), NEVER));
        let waited = tokio::time::timeout(Duration::from_secs(60), next.as_mut()).await;
        assert!(waited.is_err() && unread.is_held_up());
        let part = waiting.pop().unwrap().slice(1..2);
        let waited = tokio::time::timeout(Duration::from_secs(60), next.as_mut()).await;
        assert!(waited.is_err(), "a part keeps all of it");
        drop(part);
        assert!(next.await.is_some() && !unread.is_held_up());
    }

    #[tokio::test(start_paused = true)]
    async fn small_messages_count_and_each_for_more_than_nothing() {
        for size in [0, 16 << 10] {
            let unread = Unread::default();
            let mut waiting = Vec::new();
            loop {
                let counting = unread.count(large(size), NEVER);
                match tokio::time::timeout(Duration::from_secs(60), counting).await {
                    Ok(counted) => waiting.push(counted.unwrap()),
                    Err(_) => break,
                }
            }
            assert_eq!(waiting.len(), MOST / size.max(LEAST));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_has_a_little_whatever_the_others_hold() {
        let overall = UnreadOverall::default();
        overall.0.store(MOST_OVERALL, Ordering::Relaxed);
        let unread = Unread::among(&overall);
        let first = unread.count(large(ALWAYS / 2), NEVER).await;
        assert!(unread.count(large(ALWAYS / 2), NEVER).await.is_some());
        drop(first);
    }

    #[tokio::test(start_paused = true)]
    async fn a_notification_gives_way_and_what_is_waited_for_does_not() {
        let unread = Unread::default();
        let all = unread.count(large(MOST), NEVER).await.unwrap();
        assert!(unread.count(large(MOST), |_| true).await.is_none());
        drop(all);
        assert!(unread.count(large(MOST), |_| true).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn every_session_has_one_message_whatever_the_others_hold() {
        let overall = UnreadOverall::default();
        let mut held = Vec::new();
        for _ in 0..2 * MOST_OVERALL / MOST {
            let unread = Unread::among(&overall);
            for _ in 0..2 {
                let counting = unread.count(large(MOST / 2), NEVER);
                match tokio::time::timeout(Duration::from_secs(2), counting).await {
                    Ok(counted) => held.push(counted.unwrap()),
                    Err(_) => break,
                }
            }
        }
        let bytes: usize = held.iter().map(Bytes::len).sum();
        assert_eq!(bytes, MOST_OVERALL + MOST_OVERALL / 2);
        held.clear();
        assert_eq!(overall.0.load(Ordering::Relaxed), 0);
    }
}
