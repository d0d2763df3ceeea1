//! The replicas of one upstream: which there are, how they feel, and which takes the next session.
//!
//! A server at one `url` has one endpoint, dialled by name. A server with `endpoints` has one for
//! each address that each of its entries resolves to, and each is pinned: the session that opened
//! on it stays with it. What is no longer configured or resolved is draining: it keeps its sessions
//! and takes no new ones.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Uri;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::address::{Address, UrlAddress};
use super::health::{Ailment, Health};
use bowline_egress::{Origin, Pool};

/// One replica.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The URL as configured and, where a name was resolved, the address: the same on every gateway.
    pub(crate) id: Box<str>,
    pub(crate) address: Address,
    pub(crate) health: Health,
    pub(super) being_looked_at: AtomicBool,
    sessions: AtomicUsize,
    draining_since: Mutex<Option<Instant>>,
}

/// A session's hold on its endpoint; counted while it lasts.
#[derive(Debug)]
pub(crate) struct Pin(Arc<Endpoint>);

/// All endpoints of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    list: RwLock<Arc<[Arc<Endpoint>]>>,
    /// Where the next random choice comes from.
    dice: AtomicU64,
}

// === impl Endpoint ===

impl Endpoint {
    /// The endpoint at this URL.
    pub(crate) fn at_url(url: &Uri, origin: Origin, pool: Pool, health: Health) -> Self {
        Self {
            id: Self::id(url, &origin),
            address: Address::Url(UrlAddress::new(url, origin, pool)),
            health,
            being_looked_at: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            draining_since: Mutex::default(),
        }
    }

    /// The name of the endpoint at this origin.
    pub(crate) fn id(url: &Uri, origin: &Origin) -> Box<str> {
        match origin.address() {
            Some(address) => format!("{url}@{}", address.ip()).into(),
            None => url.to_string().into(),
        }
    }

    /// Whether this configured URL leads here.
    pub(crate) fn is_at(&self, url: &Uri) -> bool {
        *self.id == *Self::id(url, &self.address.url().origin)
    }

    /// How many sessions are pinned here.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining_since.lock().is_some()
    }

    /// Whether it has been draining for so long.
    pub(crate) fn has_drained_for(&self, time: Duration) -> bool {
        let since = *self.draining_since.lock();
        since.is_some_and(|since| since.elapsed() >= time)
    }

    fn drain(&self, drains: bool) {
        let mut since = self.draining_since.lock();
        *since = drains.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Whether it is left alone at the moment.
    pub(crate) fn is_ejected(&self) -> bool {
        self.health.ailment().is_some()
    }

    /// Whether nobody was there the last time.
    pub(crate) fn is_unreachable(&self) -> bool {
        let ailment = self.health.ailment();
        ailment.is_some_and(|ailment| ailment.unreachable)
    }

    pub(crate) fn takes_sessions(&self) -> bool {
        !self.is_draining() && self.health.ailment().is_none()
    }

    fn pin(self: &Arc<Self>) -> Pin {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Pin(Arc::clone(self))
    }
}

// === impl Pin ===

impl Pin {
    /// Another hold on the same endpoint.
    pub(crate) fn again(&self) -> Self {
        self.0.pin()
    }
}

impl std::ops::Deref for Pin {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

// === impl Endpoints ===

impl Endpoints {
    /// All of them, draining ones too.
    pub(crate) fn all(&self) -> Arc<[Arc<Endpoint>]> {
        Arc::clone(&self.list.read())
    }

    /// The one with this id, whether or not it takes new sessions.
    pub(crate) fn by_id(&self, id: &str) -> Option<Pin> {
        let all = self.list.read();
        let found = all.iter().find(|endpoint| *endpoint.id == *id);
        found.map(Endpoint::pin)
    }

    /// Picks the one with fewer sessions of two random ones that are well.
    ///
    /// Two choices spread nearly as evenly as looking at all of them, and several gateways that do
    /// not know of each other's choices do not all run to the same one.
    pub(crate) fn pick(&self) -> Result<Pin, Ailment> {
        self.pick_but(None)
    }

    /// The same, and another than this if there is one.
    pub(crate) fn pick_but(&self, this: Option<&Endpoint>) -> Result<Pin, Ailment> {
        let all = self.all();
        let is_other = |one: &Endpoint| this.is_some_and(|this| this.id != one.id);
        let has_other = all.iter().any(|one| is_other(one) && one.takes_sessions());
        let mut well = all
            .iter()
            .filter(|one| one.takes_sessions() && (!has_other || is_other(one)));
        let count = well.clone().count();
        if count < 2 {
            return well
                .next()
                .map(Endpoint::pin)
                .ok_or_else(|| Self::why_none(&all));
        }
        let dice = self.throw();
        let first = dice % count;
        let second = (first + 1 + (dice / count) % (count - 1)) % count;
        let nth = |n| well.clone().nth(n);
        let (first, second) = (nth(first), nth(second));
        let fewer = [first, second]
            .into_iter()
            .flatten()
            .min_by_key(|one| one.sessions());
        fewer.map(Endpoint::pin).ok_or_else(|| Self::why_none(&all))
    }

    /// Somebody needs one of them, and none is well.
    pub(crate) fn hurry(&self) {
        self.all()
            .iter()
            .for_each(|endpoint| endpoint.health.hurry());
    }

    /// Makes `wanted` the endpoints that take sessions. Known ones go on, new ones are made by
    /// `make`, and all others drain.
    pub(crate) fn set<K>(&self, wanted: Vec<(Box<str>, K)>, make: impl Fn(K) -> Endpoint) {
        let mut list = self.list.write();
        let is_wanted = |id: &str| wanted.iter().any(|(wanted, _)| **wanted == *id);
        let mut next: Vec<Arc<Endpoint>> = Vec::with_capacity(wanted.len());
        for endpoint in list.iter() {
            let draining = !is_wanted(&endpoint.id);
            endpoint.drain(draining);
            if !draining || endpoint.sessions() > 0 {
                next.push(Arc::clone(endpoint));
            }
        }
        for (id, key) in wanted {
            if !next.iter().any(|endpoint| endpoint.id == id) {
                next.push(Arc::new(make(key)));
            }
        }
        *list = next.into();
    }

    /// Forgets what drains and has no sessions left.
    pub(crate) fn forget_drained(&self) {
        let is_drained =
            |endpoint: &Arc<Endpoint>| endpoint.is_draining() && endpoint.sessions() == 0;
        if self.list.read().iter().any(is_drained) {
            let mut list = self.list.write();
            *list = list
                .iter()
                .filter(|endpoint| !is_drained(endpoint))
                .cloned()
                .collect();
        }
    }

    /// What to tell a client that could not be given an endpoint.
    fn why_none(all: &[Arc<Endpoint>]) -> Ailment {
        let ailing = all.iter().filter(|endpoint| !endpoint.is_draining());
        let soonest = ailing.filter_map(|endpoint| endpoint.health.ailment());
        soonest
            .min_by_key(|ailment| ailment.until)
            .unwrap_or_else(Ailment::nowhere)
    }

    /// A number that is hard to foresee. Not a secret; it only has to differ between gateways.
    fn throw(&self) -> usize {
        thread_local!(static KEYS: RandomState = RandomState::new());
        let thrown = self.dice.fetch_add(1, Ordering::Relaxed);
        KEYS.with(|keys| keys.hash_one(thrown)) as usize
    }
}

#[cfg(test)]
mod tests;
