//! Fair shares of a limit.
//!
//! Half of the permits are common: they go to the first requests that come. The other half is divided
//! evenly in advance: each server gets a part, and half of a server's part is divided among its callers.
//! A permit is taken from the closest share that has one: the caller's at this server, then the
//! server's, then the common half. All shares together are the limit, so no caller can use up the share
//! of another, no matter how many others take all that they can; and if there is only one server and one
//! caller, they get everything.
//!
//! A session stores its share, so that a call takes its permit without a lookup.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::caller::Caller;

pub(crate) mod memory;

/// A part of the permits, and the shares above it that may be used as well.
#[derive(Debug)]
pub(crate) struct Share {
    places: Arc<Pool>,
    level: Level,
    taken: AtomicUsize,
    above: Option<Arc<Self>>,
}

/// All permits of a kind.
#[derive(Debug)]
struct Pool {
    limit: usize,
    /// Never above the limit, even while a reload changes the shares.
    taken: AtomicUsize,
    /// The size of one share at each level.
    common: AtomicUsize,
    party: AtomicUsize,
    caller: AtomicUsize,
    callers: AtomicUsize,
}

#[derive(Debug, Clone, Copy)]
enum Level {
    Common,
    Party,
    Caller,
}

/// A permit. Dropping it returns it.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Share>);

/// The shares of one server's callers.
#[derive(Debug)]
pub(crate) struct ServerShares {
    own: Arc<Share>,
    callers: Mutex<HashMap<Caller, Arc<Share>>>,
}

/// Whose share is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShareOwner {
    Gateway,
    Server,
    Caller,
}

// === impl Share ===

impl Share {
    /// The common half of `limit` permits.
    pub(crate) fn common(limit: usize) -> Arc<Self> {
        let places = Pool {
            limit,
            taken: AtomicUsize::new(0),
            common: AtomicUsize::new(limit),
            party: AtomicUsize::new(0),
            caller: AtomicUsize::new(0),
            callers: AtomicUsize::new(1),
        };
        Arc::new(Self {
            places: Arc::new(places),
            level: Level::Common,
            taken: AtomicUsize::new(0),
            above: None,
        })
    }

    /// Changes the shares. Permits in use stay valid.
    pub(crate) fn share_out(&self, parties: usize, callers: usize) {
        let (parties, callers) = (parties.max(1), callers.max(1));
        let of_party = self.places.limit / 2 / parties;
        let caller = match callers {
            1 => of_party,
            several => of_party / 2 / several,
        };
        let places = &self.places;
        places.caller.store(caller, Ordering::Relaxed);
        places
            .party
            .store(of_party - caller * callers, Ordering::Relaxed);
        places
            .common
            .store(places.limit - of_party * parties, Ordering::Relaxed);
        places.callers.store(callers, Ordering::Relaxed);
    }

    /// A new share below this one.
    fn below(self: &Arc<Self>, level: Level) -> Arc<Self> {
        Arc::new(Self {
            places: Arc::clone(&self.places),
            level,
            taken: AtomicUsize::new(0),
            above: Some(Arc::clone(self)),
        })
    }

    /// Takes a permit from this share or from one above.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Permit> {
        if !claim(&self.places.taken, self.places.limit) {
            return None;
        }
        let from = self
            .and_above()
            .find(|share| claim(&share.taken, share.size()));
        if from.is_none() {
            self.places.taken.fetch_sub(1, Ordering::AcqRel);
        }
        from.map(|from| Permit(Arc::clone(from)))
    }

    /// Whether fewer than half of the permits that this share can use are free.
    pub(crate) fn is_scarce(self: &Arc<Self>) -> bool {
        let (mut all, mut free) = (0, 0);
        for share in self.and_above() {
            all += share.size();
            free += share
                .size()
                .saturating_sub(share.taken.load(Ordering::Relaxed));
        }
        free * 2 < all
    }

    /// The number of permits in use, in all shares.
    pub(crate) fn taken_by_all(&self) -> usize {
        self.places.taken.load(Ordering::Relaxed)
    }

    fn size(&self) -> usize {
        let size = match self.level {
            Level::Common => &self.places.common,
            Level::Party => &self.places.party,
            Level::Caller => &self.places.caller,
        };
        size.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.taken.load(Ordering::Relaxed) >= self.size()
    }

    fn and_above(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |share| share.above.as_ref())
    }
}

fn claim(taken: &AtomicUsize, size: usize) -> bool {
    let one_more = |taken| (taken < size).then_some(taken + 1);
    taken
        .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more)
        .is_ok()
}

// === impl Permit ===

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::AcqRel);
        self.0.places.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Bytes that hold something for as long as there is a copy of them.
struct Holding<T> {
    bytes: Bytes,
    _held: T,
}

/// These bytes, which hold this until their last copy is gone.
pub(crate) fn held_until_gone<T: Send + 'static>(bytes: Bytes, held: T) -> Bytes {
    Bytes::from_owner(Holding { bytes, _held: held })
}

impl<T> AsRef<[u8]> for Holding<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

// === impl ServerShares ===

impl ServerShares {
    pub(crate) fn of(common: &Arc<Share>) -> Self {
        Self {
            own: common.below(Level::Party),
            callers: Mutex::default(),
        }
    }

    /// The caller's share at this server.
    pub(crate) fn of_caller(&self, caller: &Caller) -> Arc<Share> {
        let mut callers = self.callers.lock();
        if let Some(known) = callers.get(caller) {
            return Arc::clone(known);
        }
        let share = self.own.below(Level::Caller);
        callers.insert(caller.clone(), Arc::clone(&share));
        share
    }

    /// Whose share is used up, after one of the server's callers got no permit.
    pub(crate) fn exhausted(&self) -> ShareOwner {
        let places = &self.own.places;
        if self.own.taken_by_all() >= places.limit {
            return ShareOwner::Gateway;
        }
        let full = self
            .callers
            .lock()
            .values()
            .filter(|one| one.is_full())
            .count();
        // Another caller would get a permit.
        if full < places.callers.load(Ordering::Relaxed)
            && places.caller.load(Ordering::Relaxed) > 0
        {
            return ShareOwner::Caller;
        }
        ShareOwner::Server
    }
}

#[cfg(test)]
mod tests;
