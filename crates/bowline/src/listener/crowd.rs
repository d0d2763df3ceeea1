//! How many connections there are, how many of them are strangers' from one address, and how many a
//! caller's.
//!
//! A connection is a stranger's until one of its requests was let in. Only then is it known to be
//! of somebody who may be here; until then an address has only so many, unless it is a balancer's. From
//! then on it takes of that caller's share; a balancer's does not, which carries requests of many.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::config::{Limits, Network};
use crate::fault::Fault;
use crate::session::Caller;
use crate::share::{Place, ServerShares, Share};

/// The most connections of operators: enough for probes and scrapes, and half of the descriptors that are
/// kept in reserve for them. One more sends one of them away, see [`Guests`](super::guests::Guests).
const OPERATORS: usize = 32;

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct Crowd {
    pub(super) limit: usize,
    per_address: usize,
    proxies: Vec<Network>,
    /// Whether these are the operator's, who may use the last file descriptors and always gets in.
    pub(super) is_operators: bool,
    taken: AtomicUsize,
    strangers: Mutex<HashMap<IpAddr, usize>>,
    /// The places of those who are no strangers.
    places: Arc<Share>,
    callers: ServerShares,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Visit {
    crowd: Arc<Crowd>,
    /// Whom it counts as.
    pub(crate) address: IpAddr,
    is_stranger: AtomicBool,
    /// Whether it counts among its address's strangers.
    is_counted: bool,
    /// Its caller's place, once it has one.
    place: Mutex<Option<Place>>,
}

/// Why a connection is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crowded {
    /// There are as many as may be.
    Everywhere,
    /// There are as many strangers from this address as may be.
    Address,
    /// Its caller has as many as it may.
    Caller,
}

// === impl Crowded ===

impl Crowded {
    /// How the client hears of it.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Everywhere => Fault::TooManyConnections,
            Self::Address => Fault::TooManyConnectionsFromAddress,
            Self::Caller => Fault::TooManyConnectionsOfCaller,
        }
    }
}

// === impl Crowd ===

impl Crowd {
    pub(crate) fn of_clients(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            per_address: limits.connections_per_address,
            proxies: limits.proxies.clone(),
            ..Self::of(limits.connections)
        })
    }

    pub(crate) fn of_operators() -> Arc<Self> {
        Arc::new(Self {
            is_operators: true,
            ..Self::of(OPERATORS)
        })
    }

    fn of(limit: usize) -> Self {
        let places = Share::common(limit);
        Self {
            limit,
            per_address: limit,
            proxies: Vec::new(),
            is_operators: false,
            taken: AtomicUsize::new(0),
            strangers: Mutex::default(),
            callers: ServerShares::of(&places),
            places,
        }
    }

    /// Shares the places out to so many callers.
    pub(crate) fn share_out(&self, callers: usize) {
        self.places.share_out(1, callers);
    }

    /// Lets a connection in, if there is room.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Result<Arc<Visit>, Crowded> {
        let one_more = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_more)
            .map_err(|_| Crowded::Everywhere)?;
        let address = counted_as(peer);
        let is_counted = !self.proxies.iter().any(|proxy| proxy.contains(peer));
        if is_counted && !self.one_more_from(address) {
            self.taken.fetch_sub(1, Ordering::AcqRel);
            return Err(Crowded::Address);
        }
        Ok(Arc::new(Visit {
            crowd: Arc::clone(self),
            address,
            is_stranger: AtomicBool::new(true),
            is_counted,
            place: Mutex::default(),
        }))
    }

    fn one_more_from(&self, address: IpAddr) -> bool {
        let mut strangers = self.strangers.lock();
        let count = strangers.entry(address).or_default();
        let has_room = *count < self.per_address;
        *count += usize::from(has_room);
        has_room
    }

    fn one_less_from(&self, address: IpAddr) {
        if let Entry::Occupied(mut count) = self.strangers.lock().entry(address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// One party has a whole /64 of IPv6, and chooses among its addresses freely.
pub(super) fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

// === impl Visit ===

impl Visit {
    /// Whether none of its requests was let in so far.
    pub(crate) fn is_strangers(&self) -> bool {
        self.is_stranger.load(Ordering::Relaxed)
    }

    /// One of its requests was let in, as this caller's, if that may have one more.
    pub(crate) fn welcome(&self, caller: &Caller) -> Result<(), Crowded> {
        if self.is_counted {
            let place = self.crowd.callers.of_caller(caller).take();
            *self.place.lock() = Some(place.ok_or(Crowded::Caller)?);
        }
        self.know();
        Ok(())
    }

    fn know(&self) {
        if self.is_stranger.swap(false, Ordering::AcqRel) && self.is_counted {
            self.crowd.one_less_from(self.address);
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.know();
        self.crowd.taken.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(connections: usize, connections_per_address: usize) -> Arc<Crowd> {
        Crowd::of_clients(&Limits {
            connections,
            connections_per_address,
            proxies: vec!["10.0.0.0/8".parse().unwrap()],
            ..Limits::default()
        })
    }

    fn enter(crowd: &Arc<Crowd>, peer: &str) -> Result<Arc<Visit>, Crowded> {
        crowd.enter(peer.parse().unwrap())
    }

    #[test]
    fn an_address_has_only_so_many_strangers() {
        let crowd = crowd(10, 2);
        let (first, _second) = (enter(&crowd, "192.0.2.1"), enter(&crowd, "192.0.2.1"));
        assert_eq!(
            enter(&crowd, "::ffff:192.0.2.1").unwrap_err(),
            Crowded::Address
        );
        let _other = enter(&crowd, "192.0.2.2").unwrap();
        let first = first.unwrap();
        first.welcome(&Caller::Local).unwrap();
        first.welcome(&Caller::Local).unwrap();
        let third = enter(&crowd, "192.0.2.1").unwrap();
        assert_eq!(enter(&crowd, "192.0.2.1").unwrap_err(), Crowded::Address);
        drop((first, third));
        assert!(enter(&crowd, "192.0.2.1").is_ok());
    }

    #[test]
    fn addresses_of_ipv6_count_together_as_one_party_has_them() {
        let crowd = crowd(10, 1);
        let _first = enter(&crowd, "2001:db8::1").unwrap();
        assert!(enter(&crowd, "2001:db8::ffff:1").is_err());
        assert!(enter(&crowd, "2001:db8:0:1::1").is_ok());
    }

    #[test]
    fn a_balancer_has_as_many_as_there_are() {
        let crowd = crowd(4, 1);
        let all: Vec<_> = (0..4).map(|_| enter(&crowd, "10.1.1.1").unwrap()).collect();
        assert_eq!(enter(&crowd, "192.0.2.1").unwrap_err(), Crowded::Everywhere);
        drop(all);
        assert!(enter(&crowd, "192.0.2.1").is_ok());
        assert!(crowd.strangers.lock().is_empty());
    }
}
