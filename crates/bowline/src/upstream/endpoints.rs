//! The replicas of one upstream: which exist, which are healthy, and which gets the next session.
//!
//! A server with one `url` has one endpoint, which is dialled by name; a session's conversation knows at which of the
//! name's addresses it is. A server with `endpoints`
//! has one for each address that its entries resolve to, and a session stays pinned to the endpoint
//! that it opened on. An endpoint that is no longer configured or resolved drains: it keeps its
//! sessions and gets no new ones.

mod address;
mod errands;
mod health;
mod moves;
mod spoken;
mod upkeep;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use http::Uri;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub(crate) use self::address::{Address, UrlAddress};
pub(crate) use self::errands::Errands;
pub(crate) use self::health::Ailment;
use self::health::Health;
pub(crate) use self::moves::Moves;
use self::spoken::LastSpoken;
pub(super) use self::spoken::Spoken;
pub(crate) use self::upkeep::UPKEEP_INTERVAL;
pub(super) use self::upkeep::Upkeep;
use crate::config::{Command, Target};
use bowline_egress::{Origin, Pool};

/// One replica.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The configured URL, with the address if its name was resolved. It is the same on every
    /// gateway.
    pub(crate) id: Box<str>,
    pub(crate) address: Address,
    pub(crate) health: Arc<Health>,
    pub(super) spoken: LastSpoken,
    pub(super) being_probed: AtomicBool,
    /// Idle sessions on it are being pinged.
    pub(crate) being_pinged: AtomicBool,
    sessions: AtomicUsize,
    draining_since: Mutex<Option<Instant>>,
}

/// A session's hold on its endpoint. The endpoint counts its pins.
#[derive(Debug)]
pub(crate) struct Pin(Arc<Endpoint>);

/// All endpoints of an upstream.
#[derive(Debug, Default)]
pub(crate) struct Endpoints {
    list: RwLock<Arc<[Arc<Endpoint>]>>,
    /// The counter for random choices.
    draws: AtomicU64,
}

// === impl Endpoint ===

impl Endpoint {
    /// The endpoint at this URL.
    pub(crate) fn at_url(url: &Uri, origin: Origin, pool: Pool, health: Health) -> Self {
        let id = Self::id(url, &origin);
        Self::new(id, Address::Url(UrlAddress::new(url, origin, pool)), health)
    }

    /// The endpoint that is a process for each session.
    pub(crate) fn of_command(command: &Command, health: Health) -> Self {
        Self::new(
            Self::id_of_command(command),
            Address::Command(command.clone()),
            health,
        )
    }

    fn new(id: Box<str>, address: Address, health: Health) -> Self {
        Self {
            id,
            address,
            health: Arc::new(health),
            spoken: LastSpoken::default(),
            being_probed: AtomicBool::new(false),
            being_pinged: AtomicBool::new(false),
            sessions: AtomicUsize::new(0),
            draining_since: Mutex::default(),
        }
    }

    /// The id of the endpoint at this origin.
    pub(crate) fn id(url: &Uri, origin: &Origin) -> Box<str> {
        match origin.address() {
            Some(address) => format!("{url}@{}", address.ip()).into(),
            None => url.to_string().into(),
        }
    }

    /// The id of the endpoint of this command: a hash, because arguments and variables may be secret.
    pub(crate) fn id_of_command(command: &Command) -> Box<str> {
        format!("command:{}", command.identity()).into()
    }

    /// Whether a server that is configured like this has this endpoint.
    pub(crate) fn is_on(&self, target: &Target) -> bool {
        match (target, &self.address) {
            (Target::Command(command), Address::Command(_)) => {
                self.id == Self::id_of_command(command)
            }
            (Target::Url(_) | Target::Endpoints(_), Address::Url(at)) => {
                let mut urls = target.urls().iter();
                urls.any(|url| self.id == Self::id(url, &at.origin))
            }
            _ => false,
        }
    }

    /// How many sessions are pinned to it.
    pub(crate) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining_since.lock().is_some()
    }

    /// Whether it has been draining for at least this time.
    pub(crate) fn has_drained_for(&self, time: Duration) -> bool {
        let since = *self.draining_since.lock();
        since.is_some_and(|since| since.elapsed() >= time)
    }

    fn drain(&self, drains: bool) {
        let mut since = self.draining_since.lock();
        *since = drains.then(|| since.unwrap_or_else(Instant::now));
    }

    /// Whether it is ejected at the moment.
    pub(crate) fn is_ejected(&self) -> bool {
        self.health.ailment().is_some()
    }

    /// Whether the last connection to it failed.
    pub(crate) fn is_unreachable(&self) -> bool {
        let ailment = self.health.ailment();
        ailment.is_some_and(|ailment| ailment.unreachable)
    }

    pub(crate) fn takes_sessions(&self) -> bool {
        !self.is_draining() && self.may_be_tried()
    }

    /// Whether a session may be opened. A command cannot be probed: after its rest, the next session tries it.
    fn may_be_tried(&self) -> bool {
        match (self.health.ailment(), &self.address) {
            (None, _) => true,
            (Some(ailment), Address::Command(_)) => ailment.until <= Instant::now(),
            (Some(_), Address::Url(_)) => false,
        }
    }

    fn pin(self: &Arc<Self>) -> Pin {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Pin(Arc::clone(self))
    }
}

// === impl Pin ===

impl Pin {
    /// Another pin to the same endpoint.
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
    /// All endpoints, including draining ones.
    pub(crate) fn all(&self) -> Arc<[Arc<Endpoint>]> {
        Arc::clone(&self.list.read())
    }

    /// The endpoint with this id, even if it accepts no new sessions.
    pub(crate) fn by_id(&self, id: &str) -> Option<Pin> {
        let all = self.list.read();
        let found = all.iter().find(|endpoint| *endpoint.id == *id);
        found.map(Endpoint::pin)
    }

    /// Picks two healthy endpoints at random and returns the one with fewer sessions.
    ///
    /// This spreads sessions nearly as evenly as comparing all endpoints, and several gateways that
    /// do not know each other's choices do not all pick the same one. `this` is avoided if another
    /// endpoint is available.
    pub(crate) fn pick_avoiding(&self, this: Option<&Endpoint>) -> Result<Pin, Ailment> {
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
        let drawn = self.draw();
        let first = drawn % count;
        let second = (first + 1 + (drawn / count) % (count - 1)) % count;
        let nth = |n| well.clone().nth(n);
        let (first, second) = (nth(first), nth(second));
        let fewer = [first, second]
            .into_iter()
            .flatten()
            .min_by_key(|one| one.sessions());
        fewer.map(Endpoint::pin).ok_or_else(|| Self::why_none(&all))
    }

    /// A session needs an endpoint and none is healthy: shortens the ejections.
    pub(crate) fn hurry(&self) {
        self.all()
            .iter()
            .for_each(|endpoint| endpoint.health.hurry());
    }

    /// Sets the endpoints that accept sessions. Known ones continue, new ones are created by
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

    /// Removes drained endpoints that have no sessions left.
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

    /// Why no endpoint is available: the reason of the one whose probe is due first, among those that still answer
    /// if there are any, because a new session waits for one of these.
    fn why_none(all: &[Arc<Endpoint>]) -> Ailment {
        let ailing = all.iter().filter(|endpoint| !endpoint.is_draining());
        let soonest = ailing.filter_map(|endpoint| endpoint.health.ailment());
        soonest
            .min_by_key(|ailment| (!ailment.is_passing(), ailment.until))
            .unwrap_or_else(Ailment::nowhere)
    }

    /// A random number. It is not secret; it only has to differ between gateways.
    fn draw(&self) -> usize {
        thread_local!(static KEYS: RandomState = RandomState::new());
        let number = self.draws.fetch_add(1, Ordering::Relaxed);
        KEYS.with(|keys| keys.hash_one(number)) as usize
    }
}

#[cfg(test)]
mod tests;
